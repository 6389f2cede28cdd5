"""Imports torch, as a program under `loom run`."""

import torch

assert torch.ones(2).sum() == 2
print("goes on")
