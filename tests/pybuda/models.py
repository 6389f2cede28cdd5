"""Small modules that the tests of the facade run."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from torch_loom import pybuda
from torch_loom.pybuda import op

SIZE = 8


class Echo(pybuda.PyBudaModule):
    """A signal and its echo, each through a matrix: the one scaled by the other, and the other."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.direct = pybuda.Parameter(torch.rand(SIZE, SIZE))
        self.delayed = pybuda.Parameter(torch.rand(SIZE, SIZE))

    def forward(self, dry: Any, wet: Any) -> Any:
        tail = op.Matmul("tail", wet, self.delayed)
        return op.Matmul("through", dry, self.direct) * tail, tail

    def reference(self, dry: torch.Tensor, wet: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What PyTorch makes of the same inputs."""
        tail = wet @ self.delayed.value()
        return dry @ self.direct.value() * tail, tail


class Projection(pybuda.PyBudaModule):
    """Coordinates in another basis."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.basis = pybuda.Parameter(torch.rand(SIZE, SIZE))

    def forward(self, x: Any) -> Any:
        return op.Matmul("project", x, self.basis)


class Blend(nn.Module):
    """Two inputs, mixed by a matrix each."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.rand(SIZE, SIZE))
        self.right = nn.Parameter(torch.rand(SIZE, SIZE))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ self.left + y @ self.right


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """One micro-batch for modules of two inputs."""
    return torch.rand(4, SIZE, SIZE), torch.rand(4, SIZE, SIZE)
