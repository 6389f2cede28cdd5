"""What a graph that was read calls beside PyTorch and the rules of ops: sizes, numbers, checks."""

from __future__ import annotations

from typing import Any

import torch

from torch_loom.errors import OnnxError


def tensor_of_sizes(
    values: Any, *, like: torch.Tensor | None = None, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    """Return sizes as a tensor."""
    return torch.tensor(values, dtype=dtype, device=None if like is None else like.device)


def with_rank(tensor: torch.Tensor, rank: int, what: str) -> torch.Tensor:
    """Return a tensor that has as many dimensions as the model declares for it.

    Raises:
        OnnxError: it has not.
    """
    if tensor.dim() != rank:
        raise OnnxError(
            f"the model declares {rank} dimensions for {what}, and it has {tensor.dim()}: "
            f"{list(tensor.shape)}"
        )
    return tensor


def numbers_of(tensor: torch.Tensor) -> list[Any]:
    """Return the elements of a tensor: where they are not known, the model cannot be exported."""
    numbers: list[Any] = tensor.flatten().tolist()
    return numbers


def number_of(tensor: torch.Tensor) -> Any:
    """Return the only element of a tensor."""
    return tensor.item()
