"""What the arguments of torch.loom.comm must be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.errors import CommunicationError, ShapeError


def split(tensor: torch.Tensor, sizes: list[int], dim: int, name: str) -> tuple[torch.Tensor, ...]:
    if sum(sizes) != tensor.shape[dim] or min(sizes) < 0:
        raise CommunicationError(
            f"Expected {name} along dimension {dim} to add up to {tensor.shape[dim]}, none of them "
            f"negative, but got {sizes}"
        )
    return torch.split_with_sizes(tensor, sizes, dim)


def streams_of(
    streams: Iterable[torch.Stream | None] | None, indices: Sequence[int]
) -> list[torch.Stream | None]:
    given = list(streams or ())[: len(indices)]
    for i, stream in enumerate(given):
        if stream is not None and stream.device_index != indices[i]:
            raise CommunicationError(
                f"Expected streams[{i}] to be a stream of {DEVICE_TYPE}:{indices[i]}, where the part goes, "
                f"but got one of {stream.device}"
            )
    return given + [None] * (len(indices) - len(given))


def gathered_shape(tensors: list[torch.Tensor], dim: int) -> list[int]:
    if not tensors:
        raise CommunicationError("Expected at least one tensor to gather, but got none")
    dim = wrapped_dim(dim, tensors[0])
    expected = list(tensors[0].shape)
    for i, tensor in enumerate(tensors):
        check_on_device(tensor, f"tensors[{i}]")
        sizes = list(tensor.shape)
        if len(sizes) == len(expected):
            expected[dim] = sizes[dim]
        if sizes != expected:
            raise CommunicationError(
                f"Expected all tensors to have equal sizes but along dimension {dim}: tensors[{i}] should be "
                f"{sized(expected)}, but got {shown(tensor)}"
            )
    expected[dim] = sum(tensor.shape[dim] for tensor in tensors)
    return expected


def wrapped_dim(dim: int, tensor: torch.Tensor) -> int:
    if not -tensor.dim() <= dim < tensor.dim():
        raise IndexError(f"There is no dimension {dim} in a tensor of shape {shown(tensor)}")
    return dim % tensor.dim()


def check_on_device(tensor: torch.Tensor, name: str) -> None:
    if tensor.device.type != DEVICE_TYPE:
        raise CommunicationError(
            f"Expected {name} to be on a {DEVICE_TYPE} device, but it is on {tensor.device}"
        )


def check_alike(tensor: torch.Tensor, first: torch.Tensor, name: str) -> None:
    if tensor.shape != first.shape:
        raise ShapeError(f"{name} has the shape {shown(tensor)}, but the first one has {shown(first)}")
    for what in ("dtype", "layout"):
        got, expected = getattr(tensor, what), getattr(first, what)
        if got != expected:
            raise CommunicationError(f"{name} has the {what} {got}, but the first one has {expected}")


def sized(sizes: Iterable[int]) -> str:
    return "x".join(map(str, sizes)) or "()"


def shown(value: Any) -> Any:
    """A tensor by its shape: its values would fill the message."""
    if isinstance(value, torch.Tensor):
        return sized(value.shape)
    if isinstance(value, (list, tuple)):
        return [shown(element) for element in value]
    return value
