"""Axes as models write them: negative ones count from the end."""

from __future__ import annotations

from torch_loom.errors import OnnxError


def from_start(axis: int, rank: int) -> int:
    """Return an axis counted from the first one.

    Raises:
        OnnxError: there is no such axis.
    """
    if not -rank <= axis < rank:
        allowed = f"from {-rank} to {rank - 1}" if rank else "none, as there are no dimensions"
        raise OnnxError(f"there is no axis {axis} of {rank} dimensions: allowed are {allowed}")
    return axis % rank
