"""Sequences and optional values: lists of tensors, and None."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_loom.compiler.onnx.axes import from_start
from torch_loom.compiler.onnx.table import Int, op


@op("SequenceEmpty")
def sequence_empty(*, dtype: torch.dtype | None = None) -> Any:
    """A sequence without tensors."""
    return []


@op("SequenceConstruct")
def sequence_construct(*values: Tensor) -> Any:
    """A sequence of tensors."""
    return list(values)


@op("SequenceAt")
def sequence_at(values: Any, position: Int) -> Tensor:
    """The tensor at a place."""
    made: Tensor = values[position]
    return made


@op("SequenceLength")
def sequence_length(values: Any) -> Tensor:
    """How many tensors there are."""
    return torch.tensor(len(values), dtype=torch.int64)


@op("SequenceInsert")
def sequence_insert(values: Any, value: Tensor, position: Int | None = None) -> Any:
    """A sequence with one tensor more, at a place or at the end."""
    at = len(values) if position is None else position
    return [*values[:at], value, *values[at:]]


@op("SequenceErase")
def sequence_erase(values: Any, position: Int | None = None) -> Any:
    """A sequence without the tensor at a place, or without the last."""
    at = from_start(-1 if position is None else position, len(values))
    return [*values[:at], *values[at + 1 :]]


@op("SplitToSequence")
def split_to_sequence(x: Tensor, split: Any = None, *, axis: Int = 0, keepdims: Int = 1) -> Any:
    """Parts along an axis: of sizes, of one size, or single slices."""
    if split is None:
        parts = torch.split(x, 1, axis)
        return list(parts) if keepdims else [part.squeeze(axis) for part in parts]
    return list(torch.split(x, split.tolist(), axis))


@op("ConcatFromSequence")
def concat_from_sequence(values: Any, *, axis: Int, new_axis: Int = 0) -> Tensor:
    """All tensors of a sequence along an axis, or along a new one."""
    return torch.stack(list(values), axis) if new_axis else torch.cat(list(values), axis)


@op("Optional")
def optional(value: Any = None, *, type: Any = None) -> Any:
    """A value that may be absent."""
    return value


@op("OptionalHasElement")
def optional_has_element(value: Any = None) -> Tensor:
    """Whether there is a value."""
    return torch.tensor(value is not None)


@op("OptionalGetElement")
def optional_get_element(value: Any) -> Any:
    """The value; there must be one."""
    if value is None:
        raise ValueError("OptionalGetElement: there is no value")
    return value
