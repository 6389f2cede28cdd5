"""The chips of the devices, which are handed down: this layer knows no devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_loom.chips.chip import Chip

_find: Callable[[int], Chip] | None = None


def set_chip_of(find: Callable[[int], Chip]) -> None:
    """Say what gives the description of a device's chip."""
    global _find
    _find = find


def chip_of(device: int) -> Chip:
    """Return the description of a device's chip."""
    assert _find is not None, "set_chip_of() has been called"
    return _find(device)
