"""Reductions along one dimension, which stays with size one."""

from __future__ import annotations

from typing import Any

import torch

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.op.apply import apply
from torch_loom.pybuda.tensor import Tensor

Torch = Any  # a torch.Tensor; several of its methods have no types


def _reduce(op_type: str, name: str, a: Any, dim: int, compute: Any, **attributes: Any) -> Tensor:
    if not -4 <= dim <= 3:
        raise PyBudaError(f"{op_type} {name!r}: dim is {dim}; it is -4 to 3")
    made: Tensor = apply(op_type, name, (a,), compute, {"dim": dim, **attributes})
    return made


def ReduceSum(name: str, operandA: Any, dim: int) -> Tensor:
    """Sum along a dimension."""
    return _reduce(
        "reduce_sum", name, operandA, dim, lambda x: torch.sum(x, dim, keepdim=True, dtype=x.dtype)
    )


def ReduceAvg(name: str, operandA: Any, dim: int) -> Tensor:
    """Mean along a dimension."""
    return _reduce("reduce_avg", name, operandA, dim, lambda x: torch.mean(x, dim, keepdim=True))


def ReduceMax(name: str, operandA: Any, dim: int, stride: int = -1) -> Tensor:
    """Maximum along a dimension, or of each window of ``stride`` elements."""

    def run(x: Torch) -> Torch:
        if stride == -1:
            return torch.amax(x, dim, keepdim=True)
        return torch.amax(_windows(x, dim, stride), dim % x.dim() + 1)

    return _reduce("reduce_max", name, operandA, dim, run, stride=stride)


def GroupedReduceAvg(name: str, operandA: Any, dim: int, groups: int, keep_dims: bool = False) -> Tensor:
    """Mean of each of ``groups`` equal parts of a dimension; ``keep_dims`` repeats it for every element."""

    def run(x: Torch) -> Torch:
        if groups < 1 or x.shape[dim] % groups:
            raise PyBudaError(f"{groups} groups do not divide the {x.shape[dim]} elements")
        size = x.shape[dim] // groups
        means = torch.mean(_windows(x, dim, size), dim % x.dim() + 1)
        return means.repeat_interleave(size, dim % x.dim()) if keep_dims else means

    return _reduce("grouped_reduce_avg", name, operandA, dim, run, groups=groups, keep_dims=keep_dims)


def _windows(x: Torch, dim: int, size: int) -> Torch:
    if size < 1 or x.shape[dim] % size:
        raise PyBudaError(f"windows of {size} do not divide the {x.shape[dim]} elements")
    return x.unflatten(dim, (x.shape[dim] // size, size))
