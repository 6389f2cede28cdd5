"""What the arguments of torch.loom.comm must be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.errors import CommunicationError, ShapeError

KIND = f"{DEVICE_TYPE.upper()} tensors"


def split(tensor: torch.Tensor, sizes: list[int], dim: int) -> tuple[torch.Tensor, ...]:
    if sum(sizes) != tensor.shape[dim] or min(sizes) < 0:
        raise CommunicationError(
            f"Expected chunk_sizes to add up to {tensor.shape[dim]}, the tensor's size at dim {dim}, none of "
            f"them negative, but got {sizes}"
        )
    return torch.split_with_sizes(tensor, sizes, dim)


def streams_of(
    streams: Iterable[torch.Stream | None] | None, indices: Sequence[int]
) -> list[torch.Stream | None]:
    given = list(streams or ())[: len(indices)]
    for i, stream in enumerate(given):
        if stream is not None and stream.device_index != indices[i]:
            raise CommunicationError(
                f"Expected the device associated with the stream at index {i} (was {stream.device_index}) to "
                f"match the device supplied at that index (expected {indices[i]})"
            )
    return given + [None] * (len(indices) - len(given))


def gathered_shape(tensors: list[torch.Tensor], dim: int) -> list[int]:
    if not tensors:
        raise CommunicationError("Expected at least one tensor to gather from, but got none")
    dim = wrapped_dim(dim, tensors[0])
    expected = list(tensors[0].shape)
    for i, tensor in enumerate(tensors):
        check_on_device(tensor, "input tensors", f"tensor at index {i}")
        if tensor.dim() != len(expected):
            raise CommunicationError(
                f"Expected all input tensors to have the same number of dimensions, but tensor at index {i} "
                f"has {tensor.dim()} dimensions, (expected {len(expected)})"
            )
        expected[dim] = tensor.shape[dim]
        if list(tensor.shape) != expected:
            raise CommunicationError(
                f"Input tensor at index {i} has invalid shape {list(tensor.shape)}, but expected {expected}"
            )
    expected[dim] = sum(tensor.shape[dim] for tensor in tensors)
    return expected


def scattered_sizes(tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int) -> list[int]:
    if not out:
        raise CommunicationError("Expected at least one output tensor to scatter to, but got none")
    dim = wrapped_dim(dim, tensor)
    for i, result in enumerate(out):
        check_on_device(result, "output tensors", f"output tensor at index {i}")
        expected = list(tensor.shape)
        if result.dim() == tensor.dim():
            expected[dim] = result.shape[dim]
        if list(result.shape) != expected:
            raise CommunicationError(
                f"Output tensor at index {i} has incorrect shape: {list(result.shape)}. Expected same shape "
                f"except for scatter dim {dim} as the source tensor: {list(tensor.shape)}"
            )
    sizes = [result.shape[dim] for result in out]
    if sum(sizes) != tensor.shape[dim]:
        raise CommunicationError(
            f"Total size for output tensors along scatter dim {dim} does not match the source tensor size at "
            f"dim {dim}. Expected {tensor.shape[dim]}, but got total size {sum(sizes)}"
        )
    return sizes


def wrapped_dim(dim: int, tensor: torch.Tensor) -> int:
    if not -tensor.dim() <= dim < tensor.dim():
        raise IndexError(f"There is no dimension {dim} in a tensor of shape {shown(tensor)}")
    return dim % tensor.dim()


def check_on_device(tensor: torch.Tensor, which: str, name: str) -> None:
    if tensor.device.type != DEVICE_TYPE:
        raise CommunicationError(
            f"Expected all {which} to be {KIND}, but {name} has device '{tensor.device}'"
        )


def check_alike(tensor: torch.Tensor, first: torch.Tensor, name: str) -> None:
    if tensor.shape != first.shape:
        raise ShapeError(f"{name} has invalid size: got {shown(tensor)}, but expected {shown(first)}")
    for what in ("dtype", "layout"):
        got, expected = getattr(tensor, what), getattr(first, what)
        if got != expected:
            raise CommunicationError(f"{name} has the {what} {got}, but the first one has {expected}")


def shown(value: Any) -> Any:
    """A tensor by its shape: its values would fill the message."""
    if isinstance(value, torch.Tensor):
        return "x".join(map(str, value.shape)) or "()"
    if isinstance(value, (list, tuple)):
        return [shown(element) for element in value]
    return value
