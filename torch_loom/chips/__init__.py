"""Chip descriptions: TOML files that say what a chip is. Those that are shipped stand beside this file."""

from torch_loom.chips.chip import Chip, available, load, with_host
from torch_loom.errors import ChipError

__all__ = ["Chip", "ChipError", "available", "load", "with_host"]
