"""Learning-rate schedulers of PyBuda's optimizers."""

from __future__ import annotations

from typing import Any

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.optimizers import Optimizer


class LearningRateScheduler:
    """Changes the learning rate of an optimizer at each step. Subclass it and write ``get_lr``."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.torch_scheduler: Any = None

    def get_lr(self) -> float:
        """Return the learning rate after the next step."""
        raise PyBudaError(f"{type(self).__name__} has no get_lr(): write one that returns the next rate")

    def step(self) -> None:
        """Set the optimizer's learning rate to that of ``get_lr``."""
        self.optimizer.set_optimizer_parameters(learning_rate=self.get_lr())

    def get_pytorch_scheduler(self, optimizer: Any) -> Any:
        """Return the PyTorch scheduler that does the same; override it to have one."""
        return self.torch_scheduler
