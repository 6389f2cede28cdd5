"""Prints, as JSON, the commands of two training steps of each of some models, by the model's name.

Run in a process of its own: driver and launch mode are settings.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.commands import recorded_commands

DEVICE = "loom"


class Residual(nn.Module):
    """Two convolutions beside a shortcut, on [N, channels, H, W]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x + self.body(x))


class Attending(nn.Module):
    """Attention with dropout, causal or masked, then a perceptron; tokens [N, T, 8] to logits [N, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=0.1)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        masked = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + (mixed + masked).transpose(1, 2).flatten(2)
        return self.head(self.layer(x).mean(1))


class Recurrent(nn.Module):
    """LSTM, GRU and a tanh RNN in turn; sequences [N, T, 6] to logits [N, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 6, 2, batch_first=True, dropout=0.1, bidirectional=True)
        self.gru = nn.GRU(12, 6, batch_first=True)
        self.rnn = nn.RNN(6, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(self.gru(self.lstm(x)[0])[0])[0][:, -1]


def models() -> dict[str, tuple[nn.Module, Tensor, Callable[[list[nn.Parameter]], torch.optim.Optimizer]]]:
    """Returns each model with an input for it, on the host, and its optimizer."""
    sgd, adamw, fused = torch.optim.SGD, torch.optim.AdamW, {"fused": True}
    images = torch.randn(2, 3, 8, 8)
    return {
        "mlp": (
            nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)),
            torch.randn(5, 4),
            lambda p: sgd(p, lr=0.1, momentum=0.9, foreach=True),
        ),
        "cnn": (
            nn.Sequential(
                *(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2)),
                *(nn.Flatten(), nn.Linear(36, 3)),
            ),
            images,
            lambda p: sgd(p, lr=0.1, momentum=0.9, **fused),
        ),
        "resnet": (
            nn.Sequential(nn.Conv2d(3, 4, 3), Residual(4), nn.AvgPool2d(6), nn.Flatten(), nn.Linear(4, 3)),
            images,
            lambda p: torch.optim.Adagrad(p, lr=0.1, foreach=False),
        ),
        "transformer": (Attending(), torch.randn(2, 5, 8), lambda p: torch.optim.Adam(p, **fused)),
        "recurrent": (Recurrent(), torch.randn(2, 5, 6), lambda p: adamw(p, foreach=True)),
        "embedding": (
            nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 3)),
            torch.randint(0, 7, (5, 3)),
            lambda p: adamw(p, foreach=True),
        ),
    }


def commands_of(
    model: nn.Module, inputs: Tensor, make: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
) -> list[str]:
    """Returns the commands of two training steps, the first under autocast."""
    with recorded_commands() as commands:
        model, x = model.to(DEVICE), inputs.to(DEVICE)
        labels = torch.arange(len(inputs)).remainder(3).to(DEVICE)
        optimizer = make(list(model.parameters()))
        for is_autocast in (True, False):
            optimizer.zero_grad()
            with torch.autocast(DEVICE, torch.bfloat16, enabled=is_autocast):
                loss = functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
    return commands


def main() -> None:
    """Writes one line to stdout."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {name: commands_of(*case) for name, case in models().items()}
    assert all(a != b for a, b in pairwise(found.values()))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
