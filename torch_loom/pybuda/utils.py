"""Arithmetic on tiles, and tensors of PyTorch as PyBuda's parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from torch_loom.pybuda.parameter import Parameter
from torch_loom.pybuda.tensor import TILE

TILE_WIDTH = TILE_HEIGHT = TILE


def align_up(value: int, size: int) -> int:
    """Return the next multiple of a size."""
    return -(-value // size) * size


def align_up_tile(value: int) -> int:
    """Return the next multiple of a tile's 32 rows or columns."""
    return align_up(value, TILE)


def round_up_div(value: int, by: int) -> int:
    """Return a quotient, rounded up."""
    return -(-value // by)


def clamp(value: float, lower: float | None = None, upper: float | None = None) -> float:
    """Return the number of a range that is nearest to a value; None: no bound on that side."""
    value = value if lower is None else max(value, lower)
    return value if upper is None else min(value, upper)


def detach_tensors(tensors: Iterable[torch.Tensor], fix_non_contiguos: bool = False) -> list[torch.Tensor]:
    """Return tensors apart from autograd's graph, which need gradients as before; in rows if asked for."""
    made = []
    for tensor in tensors:
        value = tensor.detach().contiguous() if fix_non_contiguos else tensor.detach()
        made.append(value.requires_grad_(tensor.requires_grad))
    return made


def get_pybuda_parameters_from_state_dict(state_dict: Mapping[str, torch.Tensor]) -> dict[str, Parameter]:
    """Return a parameter for each value of a state dict."""
    return {
        name: Parameter(value, requires_grad=value.requires_grad, name=name)
        for name, value in state_dict.items()
    }
