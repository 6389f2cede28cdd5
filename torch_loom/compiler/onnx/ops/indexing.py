"""Taking and putting elements at places that tensors name."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_loom.compiler.onnx.axes import from_start
from torch_loom.compiler.onnx.table import Int, Number, op

_REDUCED = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@op("Gather")
def gather(x: Tensor, indices: Number, *, axis: Int = 0) -> Tensor:
    """Take slices along an axis; negative places count from the end."""
    if isinstance(indices, int):
        return x.select(axis, indices)
    return x[(slice(None),) * from_start(axis, x.dim()) + (indices.long(),)]


@op("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: Int = 0) -> Tensor:
    """Take elements along an axis, a place for each."""
    return torch.gather(x, axis, _from_start(indices, x.shape[axis]))


@op("GatherND")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: Int = 0) -> Tensor:
    """Take slices at places of several dimensions, the same batch with the same."""
    places = (*_batch_places(indices, batch_dims), *indices.long().unbind(-1))
    return x[places]


def _batch_places(indices: Tensor, batch_dims: int) -> list[Tensor]:
    places = []
    rank = indices.dim() - 1
    for axis in range(batch_dims):
        at = torch.arange(indices.shape[axis], device=indices.device)
        places.append(at.reshape([-1 if each == axis else 1 for each in range(rank)]))
    return places


@op("Scatter", "ScatterElements")
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: Int = 0, reduction: str = "none"
) -> Tensor:
    """Put elements along an axis, or combine them with what is there."""
    places = _from_start(indices, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, _REDUCED[reduction])


@op("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """Put slices at places of several dimensions, or combine them with what is there."""
    places = tuple(indices.long().unbind(-1))
    if reduction in ("none", "add"):
        return x.index_put(places, updates, accumulate=reduction == "add")
    # One place a slice in the flattened leading dimensions.
    depth = indices.shape[-1]
    flat = torch.zeros_like(places[0])
    for axis, place in enumerate(places):
        flat = flat * x.shape[axis] + _from_start(place, x.shape[axis])
    rows = x.flatten(0, depth - 1)
    sources = updates.reshape(-1, *rows.shape[1:])
    at = flat.reshape([-1] + [1] * (rows.dim() - 1)).expand_as(sources)
    return rows.scatter_reduce(0, at, sources, _REDUCED[reduction]).reshape(x.shape)


@op("TensorScatter")
def tensor_scatter(
    past: Tensor, update: Tensor, write_indices: Tensor | None = None, *, axis: Int = -2, mode: str = "linear"
) -> Tensor:
    """Write a stretch of each sample's cache, from its own place on."""
    at = from_start(axis, past.dim())
    steps = torch.arange(update.shape[at], device=past.device)
    starts = write_indices if write_indices is not None else torch.zeros_like(past[:, 0], dtype=torch.int64)
    starts = starts.reshape(past.shape[0], -1)[:, 0]
    places = starts.unsqueeze(1) + steps
    if mode == "circular":
        places = places % past.shape[at]
    shape = [past.shape[0], *[1] * (past.dim() - 1)]
    shape[at] = update.shape[at]
    return past.scatter(at, places.reshape(shape).expand_as(update), update)


@op("OneHot")
def one_hot(indices: Tensor, depth: Int, values: Tensor, *, axis: Int = -1) -> Tensor:
    """One value at each place named and another elsewhere, along a new axis."""
    depth = int(depth)
    at = indices.long().unsqueeze(axis)
    shape = [1] * at.dim()
    shape[axis] = depth
    steps = torch.arange(depth, device=indices.device).reshape(shape)
    inside = (at >= -depth) & (at < depth)
    return torch.where((at % depth == steps) & inside, values[1], values[0])


@op("NonZero")
def non_zero(x: Tensor) -> Tensor:
    """The places of what is not zero, a row a dimension."""
    return torch.nonzero(x).mT


@op("Compress")
def compress(x: Tensor, condition: Tensor, *, axis: Int | None = None) -> Tensor:
    """Keep slices along an axis, or elements, where a condition holds."""
    x, at = (x.flatten(), 0) if axis is None else (x, axis)
    return x.index_select(at, torch.nonzero(condition).flatten())


@op("Unique")
def unique(x: Tensor, *, axis: Int | None = None, sorted: Int = 1) -> tuple[Tensor, ...]:
    """Values without repetition, where each comes first, which each element is, and how many there are."""
    values, inverse, counts = torch.unique(x, sorted=True, return_inverse=True, return_counts=True, dim=axis)
    inverse = inverse.flatten()
    order = torch.arange(inverse.numel(), device=x.device)
    first = torch.full_like(counts, inverse.numel()).scatter_reduce(0, inverse, order, "amin")
    if not sorted:
        by_place = torch.argsort(first)
        values = values.index_select(0 if axis is None else axis, by_place)
        inverse = torch.argsort(by_place)[inverse]
        first, counts = first[by_place], counts[by_place]
    return values, first, inverse, counts


@op("ReverseSequence")
def reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: Int = 1, time_axis: Int = 0) -> Tensor:
    """Reverse the first so many steps of each sample."""
    steps = torch.arange(x.shape[time_axis], device=x.device).unsqueeze(1)
    at = torch.where(steps < lengths, lengths - 1 - steps, steps)
    at = at if time_axis == 0 else at.mT
    shape = [1] * x.dim()
    shape[time_axis], shape[batch_axis] = x.shape[time_axis], x.shape[batch_axis]
    return torch.gather(x, time_axis, at.reshape(shape).expand_as(x))


def _from_start(indices: Tensor, size: int) -> Tensor:
    wide = indices.long()
    return torch.where(wide < 0, wide + size, wide)
