"""Models that the tests emulate."""

from __future__ import annotations

import torch
from torch import nn


def transformer() -> nn.Module:
    torch.manual_seed(0)
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0), 2
    ).eval()


def convnet() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 64, 32),
        nn.GELU(),
        nn.LayerNorm(32),
        nn.Linear(32, 10),
    )
