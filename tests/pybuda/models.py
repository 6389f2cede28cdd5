"""Small modules that the tests of the facade run."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from torch_loom import pybuda
from torch_loom.pybuda import op

SIZE = 8


class TwoMatmuls(pybuda.PyBudaModule):
    """Two products; their sum and the second one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.weights1 = pybuda.Parameter(torch.rand(SIZE, SIZE))
        self.weights2 = pybuda.Parameter(torch.rand(SIZE, SIZE))

    def forward(self, act1: Any, act2: Any) -> Any:
        first = op.Matmul("matmul1", act1, self.weights1)
        second = op.Matmul("matmul2", act2, self.weights2)
        return first + second, second

    def reference(self, act1: torch.Tensor, act2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What PyTorch makes of the same inputs."""
        second = act2 @ self.weights2.value()
        return act1 @ self.weights1.value() + second, second


class OneMatmul(pybuda.PyBudaModule):
    """One product."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.weights = pybuda.Parameter(torch.rand(SIZE, SIZE))

    def forward(self, act: Any) -> Any:
        return op.Matmul("matmul", act, self.weights)


class TorchSum(nn.Module):
    """A product of each of two inputs, summed."""

    def __init__(self) -> None:
        super().__init__()
        self.weights1 = nn.Parameter(torch.rand(SIZE, SIZE))
        self.weights2 = nn.Parameter(torch.rand(SIZE, SIZE))

    def forward(self, act1: torch.Tensor, act2: torch.Tensor) -> torch.Tensor:
        return act1 @ self.weights1 + act2 @ self.weights2


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """One micro-batch for modules of two inputs."""
    return torch.rand(4, SIZE, SIZE), torch.rand(4, SIZE, SIZE)
