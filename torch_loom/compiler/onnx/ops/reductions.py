"""Reductions, and what orders along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_loom.compiler.onnx.axes import from_start
from torch_loom.compiler.onnx.table import Int, Ints, op


def _sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return x.sum(axes, keepdim=keep, dtype=x.dtype)


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted((from_start(axis, x.dim()) for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep, dtype=x.dtype)
    return x


def _extreme(x: Tensor, axes: list[int], keep: bool, largest: bool) -> Tensor:
    if x.numel() == 0:  # PyTorch has none of nothing; ONNX has the least value of the dtype
        shape = [1 if axis in _positive(axes, x) else size for axis, size in enumerate(x.shape)]
        info: Any = torch.finfo(x.dtype) if x.is_floating_point() else None
        if info is None and x.dtype is not torch.bool:
            info = torch.iinfo(x.dtype)
        low, high = (-torch.inf, torch.inf) if x.is_floating_point() else (0, 1)
        if info is not None and not x.is_floating_point():
            low, high = info.min, info.max
        full = torch.full(shape, low if largest else high, dtype=x.dtype, device=x.device)
        return full if keep else full.squeeze(tuple(_positive(axes, x)))
    if x.dtype is torch.bool:
        return (torch.any if largest else torch.all)(x, tuple(axes), keepdim=keep)
    return (torch.amax if largest else torch.amin)(x, tuple(axes), keepdim=keep)


def _maximum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _extreme(x, axes, keep, True)


def _minimum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _extreme(x, axes, keep, False)


def _mean(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    if not x.is_floating_point():
        return x.double().mean(axes, keepdim=keep).to(x.dtype)
    return x.mean(axes, keepdim=keep)


def _l1(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _sum(x.abs(), axes, keep)


def _l2(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    wide = x if x.is_floating_point() else x.double()
    return wide.square().sum(axes, keepdim=keep).sqrt().to(x.dtype)


def _sum_square(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _sum(x * x, axes, keep)


def _log_sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _sum(x, axes, keep).log().to(x.dtype)


def _log_sum_exp(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    wide = x if x.is_floating_point() else x.double()
    return torch.logsumexp(wide, tuple(axes), keepdim=keep).to(x.dtype)


_REDUCTIONS: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "Sum": _sum,
    "Prod": _product,
    "Max": _maximum,
    "Min": _minimum,
    "Mean": _mean,
    "L1": _l1,
    "L2": _l2,
    "SumSquare": _sum_square,
    "LogSum": _log_sum,
    "LogSumExp": _log_sum_exp,
}


def _positive(axes: list[int], x: Tensor) -> list[int]:
    return [from_start(axis, x.dim()) for axis in axes]


def _register(name: str, compute: Callable[[Tensor, list[int], bool], Tensor]) -> None:
    # A named function a reduction, so that a graph's code can refer to it.
    def reduce(
        x: Tensor, axes: Ints | None = None, *, keepdims: Int = 1, noop_with_empty_axes: Int = 0
    ) -> Tensor:
        if not axes:
            if noop_with_empty_axes:
                # Each element is reduced by itself, which only those that change it show.
                return compute(x.unsqueeze(0), [0], False)
            axes = list(range(x.dim()))
        return compute(x, list(axes), bool(keepdims)) if x.dim() else compute(x.unsqueeze(0), [0], False)

    reduce.__name__ = reduce.__qualname__ = f"reduce_{name.lower()}"
    reduce.__doc__ = f"ONNX's Reduce{name}."
    globals()[reduce.__name__] = op(f"Reduce{name}")(reduce)


for _name, _compute in _REDUCTIONS.items():
    _register(_name, _compute)


@op("ArgMax")
def arg_max(x: Tensor, *, axis: Int = 0, keepdims: Int = 1, select_last_index: Int = 0) -> Tensor:
    """Place of the largest along an axis."""
    if select_last_index:
        return x.shape[axis] - 1 - x.flip(axis).argmax(axis, keepdim=bool(keepdims))
    return x.argmax(axis, keepdim=bool(keepdims))


@op("ArgMin")
def arg_min(x: Tensor, *, axis: Int = 0, keepdims: Int = 1, select_last_index: Int = 0) -> Tensor:
    """Place of the smallest along an axis."""
    if select_last_index:
        return x.shape[axis] - 1 - x.flip(axis).argmin(axis, keepdim=bool(keepdims))
    return x.argmin(axis, keepdim=bool(keepdims))


@op("TopK")
def top_k(x: Tensor, k: Int, *, axis: Int = -1, largest: Int = 1, sorted: Int = 1) -> tuple[Tensor, Tensor]:
    """The k largest or smallest along an axis, and their places; among equals the first."""
    values, places = torch.sort(x, dim=axis, descending=bool(largest), stable=True)
    return values.narrow(axis, 0, k), places.narrow(axis, 0, k)


@op("CumSum")
def cumulative_sum(x: Tensor, axis: Int, *, exclusive: Int = 0, reverse: Int = 0) -> Tensor:
    """Sums up to each element, with it or without."""
    return _cumulative(x, axis, exclusive, reverse, torch.cumsum, 0)


@op("CumProd")
def cumulative_product(x: Tensor, axis: Int, *, exclusive: Int = 0, reverse: Int = 0) -> Tensor:
    """Products up to each element, with it or without."""
    return _cumulative(x, axis, exclusive, reverse, torch.cumprod, 1)


def _cumulative(
    x: Tensor, axis: int, exclusive: int, reverse: int, compute: Callable[..., Tensor], neutral: int
) -> Tensor:
    x = x.flip(axis) if reverse else x
    if exclusive:
        first = torch.full_like(x.narrow(axis, 0, 1), neutral)
        x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    made = compute(x, axis, dtype=x.dtype)
    return made.flip(axis) if reverse else made
