"""Enumerations of PyBuda's placer."""

from torch_loom.pybuda.enums import ChipPlacementPolicy, DRAMPlacementAlgorithm

__all__ = ["ChipPlacementPolicy", "DRAMPlacementAlgorithm"]
