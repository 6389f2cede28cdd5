"""The PyTorch twin of PyBuda's schedulers."""

from __future__ import annotations

from typing import Any

import torch


class TorchLearningRateScheduler(torch.optim.lr_scheduler.LRScheduler):
    """A PyTorch scheduler. Subclass it and write ``get_lr``, which returns a rate for each group."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        """Return the rate of each parameter group after the next step; here: unchanged."""
        return [group["lr"] for group in self.optimizer.param_groups]
