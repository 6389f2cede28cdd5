"""Chip descriptions: TOML files that say what a chip is. Those that are shipped stand beside this file."""

from torch_loom.chips.chip import Chip, available, load

__all__ = ["Chip", "available", "load"]
