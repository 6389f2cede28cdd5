"""A chip's description with what a calibration found."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

from torch_loom.chips.chip import Chip
from torch_loom.chips.cost.calibration import Calibration
from torch_loom.chips.rates import rates

# Figures of the description that a calibration measures.
KEYS = ("dram_share", "l2_gbps", "l2_full_share", "l2_none_share", "l2_write_cost", "efficiency")


def rounded(value: float) -> float:
    """Return a figure with as many digits as a description keeps."""
    return float(f"{value:.5g}")


def described(chip: Chip, found: Calibration, source: str) -> Chip:
    """Return the chip with measured rates and coefficients in place of its own, and where they come from.

    Families that were not measured keep what the description had.
    """
    peak = rates(dataclasses.replace(chip, dram_share=1.0, derating=1.0)).dram_bytes_per_ns
    measured = found.rates
    tables = {
        family: MappingProxyType({name: rounded(value) for name, value in table.items()})
        for family, table in {**chip.efficiency, **found.coefficients}.items()
    }
    return dataclasses.replace(
        chip,
        dram_share=rounded(min(1.0, measured.dram_bytes_per_ns / peak)),
        l2_gbps=rounded(measured.cache_bytes_per_ns),
        l2_full_share=rounded(measured.cache_full_share),
        l2_none_share=rounded(max(measured.cache_none_share, measured.cache_full_share)),
        l2_write_cost=rounded(measured.cache_write_cost),
        efficiency=MappingProxyType(dict(sorted(tables.items()))),
        sources=MappingProxyType({**chip.sources, **dict.fromkeys(KEYS, source)}),
    )
