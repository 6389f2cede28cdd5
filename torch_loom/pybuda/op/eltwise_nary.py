"""Ops of several operands."""

from __future__ import annotations

from typing import Any

import torch

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.op.apply import apply
from torch_loom.pybuda.tensor import Tensor

Torch = Any  # a torch.Tensor; several of its methods have no types


def Concatenate(name: str, *operands: Any, axis: int) -> Tensor:
    """Tensors one after another along an axis."""
    made: Tensor = apply("concatenate", name, operands, lambda *x: torch.cat(x, axis), {"axis": axis})
    return made


def Stack(name: str, *operands: Any, axis: int) -> Tensor:
    """Tensors of one shape along a new axis."""
    made: Tensor = apply("stack", name, operands, lambda *x: torch.stack(x, axis), {"axis": axis})
    return made


def Interleave(name: str, *operands: Any, axis: int, stride: int) -> Tensor:
    """Take ``stride`` elements of each tensor in turn along an axis, whose size it divides."""

    def run(*values: Torch) -> Torch:
        place = axis % values[0].dim()
        size = values[0].shape[place]
        if stride < 1 or size % stride:
            raise PyBudaError(f"stride {stride} does not divide the {size} elements along axis {axis}")
        split = [value.unflatten(place, (size // stride, stride)) for value in values]
        return torch.stack(split, place + 1).flatten(place, place + 2)

    made: Tensor = apply("interleave", name, operands, run, {"axis": axis, "stride": stride})
    return made


def Where(name: str, condition: Any, x: Any, y: Any) -> Tensor:
    """``x`` where the condition is not zero, else ``y``; in the format of ``x``."""

    def run(chosen: Torch, a: Torch, b: Torch) -> Torch:
        return torch.where(chosen != 0, a, b.to(a.dtype))

    made: Tensor = apply("where", name, (condition, x, y), run, format_of_operand=1)
    return made


def IndexCopy(name: str, operandA: Any, index: Any, value: Any, dim: int) -> Tensor:
    """The operand with slices along a dimension replaced: slice ``index[i]`` by slice i of ``value``."""

    def run(x: Torch, at: Torch, new: Torch) -> Torch:
        return x.index_copy(dim, at.flatten().long(), new.to(x.dtype))

    made: Tensor = apply("index_copy", name, (operandA, index, value), run, {"dim": dim})
    return made
