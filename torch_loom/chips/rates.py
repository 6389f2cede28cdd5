"""From a chip's description to its cost model: rates from its figures, coefficients from its efficiency."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch_loom.chips.chip import Chip
from torch_loom.chips.cost import CostModel
from torch_loom.chips.cost.formulas import Rates
from torch_loom.chips.cost.records import ITEM_BYTES
from torch_loom.chips.power import sustained_share
from torch_loom.chips.relatives import joined, line

# What a figure is where a description does not give it.
GUESSED_CLOCK_MHZ = 1000
GUESSED_FLOPS_PER_CYCLE = 256.0
GUESSED_DRAM_GBPS = 256.0
GUESSED_DRAM_SHARE = 0.9
# A cache is so many times as fast as the memory behind it; that of a GPU gives each core so many bytes a
# cycle (V100 18, P100 19, T4 20: Jia et al., "Dissecting the NVidia Turing T4 GPU via Microbenchmarking").
GUESSED_CACHE_SPEEDUP = 2.0
GUESSED_CACHE_BYTES_PER_CYCLE = 16.0
GUESSED_HOST_LINK_GBPS = 25.0
GUESSED_LAUNCH_NS = 1200.0
GUESSED_FULL_SHARE, GUESSED_NONE_SHARE = 0.5, 0.9
# Rates of dtypes that are not given follow from those that are: narrower ones in proportion to their width.
_ALIKE = {"float16": "bfloat16", "bfloat16": "float16", "complex64": "float32", "complex128": "float64"}


def rates(chip: Chip) -> Rates:
    """Return the rates that the formulas need, with guesses for figures that the description lacks."""
    cores = chip.num_cores or (chip.grid_rows - len(chip.harvested_rows)) * chip.grid_columns or 1
    clock_ghz = (chip.clock_mhz or GUESSED_CLOCK_MHZ) / 1000.0
    dram = _dram_gbps(chip) * (chip.dram_share or GUESSED_DRAM_SHARE)
    derating = chip.derating
    cache = dram * GUESSED_CACHE_SPEEDUP
    if chip.warp_size and cores > 1:
        cache = max(cache, cores * clock_ghz * GUESSED_CACHE_BYTES_PER_CYCLE)
    return Rates(
        cores=cores,
        clock_ghz=clock_ghz,
        dram_bytes_per_ns=dram * derating,
        cache_bytes_per_ns=(chip.l2_gbps or cache) * derating,
        cache_bytes=float(chip.l2_cache_bytes or chip.sram_per_core_bytes * cores or 1),
        link_bytes_per_ns=(chip.host_link_gbps or GUESSED_HOST_LINK_GBPS) * derating,
        flops_per_ns=_flops(chip, cores, clock_ghz),
        launch_ns=chip.kernel_launch_ns or GUESSED_LAUNCH_NS,
        cache_full_share=chip.l2_full_share or GUESSED_FULL_SHARE,
        cache_none_share=chip.l2_none_share or GUESSED_NONE_SHARE,
        cache_write_cost=chip.l2_write_cost or 1.0,
        sustained={dtype: sustained_share(chip, dtype) for dtype in chip.peak_tflops},
    )


def _dram_gbps(chip: Chip) -> float:
    if chip.dram_gbps:
        return chip.dram_gbps
    # Two transfers a clock.
    return chip.memory_clock_mhz * 2e6 * chip.memory_bus_bits / 8 / 1e9 or GUESSED_DRAM_GBPS


def _flops(chip: Chip, cores: int, clock_ghz: float, is_peak: bool = False) -> Mapping[str, float]:
    """Return flops per nanosecond for every dtype, those that are not given by the nearest that is.

    They are what the card's power lets it go on at; with ``is_peak`` those of its boost clock.
    """
    given = {
        name: peak * 1e3 * chip.derating * (1.0 if is_peak else sustained_share(chip, name))
        for name, peak in chip.peak_tflops.items()
    }
    single = given.get("float32", cores * clock_ghz * GUESSED_FLOPS_PER_CYCLE * chip.derating)
    found = dict(given)
    for dtype, width in ITEM_BYTES.items():
        if dtype not in found:
            alike = _ALIKE.get(dtype, "")
            found[dtype] = given.get(alike, single * min(4.0, 4.0 / width))
    return found


def efficiency(chip: Chip) -> Mapping[str, Mapping[str, float]]:
    """Return coefficients by family: the chip's own, else those of the chip that it names."""
    return joined(chip, line(chip))


def model(chip: Chip) -> CostModel:
    """Return the cost model of a chip."""
    return CostModel(rates(chip), efficiency(chip))


def roofline(chip: Chip, dtype: str) -> tuple[float, float]:
    """Return peak flops per second, and the flops per byte from which on they are the limit."""
    found = rates(chip)
    peak = _flops(chip, found.cores, found.clock_ghz, is_peak=True).get(dtype, math.nan)
    return peak * 1e9, peak / found.dram_bytes_per_ns
