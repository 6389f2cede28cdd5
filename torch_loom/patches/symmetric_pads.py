"""Signal pads of symmetric memory, by ranks that there are."""

from __future__ import annotations

import functools
from typing import Any

from torch_loom.patches.declared import Place, patch


@patch("torch._C._distributed_c10d:_SymmetricMemory.get_signal_pad")
def of_known_ranks(place: Place) -> Any:
    """PyTorch reads the pad's address at the place of the rank, whether the group has that rank or not: with
    another one the process crashes.
    """
    original = place.original

    @functools.wraps(original)
    def get_signal_pad(self: Any, rank: int, *given: Any, **named: Any) -> Any:
        if not 0 <= rank < self.world_size:
            raise ValueError(f"get_signal_pad(): the rank must be 0 to {self.world_size - 1}, got {rank}")
        return original(self, rank, *given, **named)

    return get_signal_pad
