"""How the tensors of torch.loom.comm lie in memory: what is sent keeps its strides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

# Dimensions, the slowest first: so permuted, a dense tensor is contiguous.
Order = tuple[int, ...]


def memory_order(tensor: torch.Tensor) -> Order:
    """Return the order of the dimensions in a dense copy of the tensor that keeps its layout."""
    strides = torch.empty_like(tensor, device="meta").stride()
    return tuple(sorted(range(tensor.dim()), key=lambda dim: -strides[dim]))


def flattened(tensors: Sequence[torch.Tensor], orders: Sequence[Order]) -> torch.Tensor:
    """Return the tensors' elements behind one another, in one dimension. That of one tensor may be a view."""
    parts = [tensor.permute(order).reshape(-1) for tensor, order in zip(tensors, orders, strict=True)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def unflattened(
    flat: torch.Tensor, tensors: Sequence[torch.Tensor], orders: Sequence[Order]
) -> Iterable[torch.Tensor]:
    """Cut ``flat`` into views of the tensors' shapes, laid out in their orders."""
    parts = torch.split_with_sizes(flat, [tensor.numel() for tensor in tensors])
    for part, tensor, order in zip(parts, tensors, orders, strict=True):
        back = sorted(range(len(order)), key=order.__getitem__)
        yield part.view([tensor.shape[dim] for dim in order]).permute(back)


def common_format(tensors: Iterable[torch.Tensor]) -> torch.memory_format:
    """Return channels_last or channels_last_3d if all tensors lie so, else the contiguous format."""
    formats = {_format(tensor) for tensor in tensors}
    return formats.pop() if len(formats) == 1 else torch.contiguous_format


def _format(tensor: torch.Tensor) -> torch.memory_format:
    wanted = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    if wanted is None:
        return torch.contiguous_format
    like = torch.empty_like(tensor, device="meta")  # dense, even if the tensor is a part of another
    is_wanted = like.is_contiguous(memory_format=wanted) and not like.is_contiguous()
    return wanted if is_wanted else torch.contiguous_format
