"""What a description claims beyond what hardware can do: where a fit without bounds may end."""

from __future__ import annotations

from torch_loom.chips.chip import Chip
from torch_loom.chips.cost.families import MAX_DRAM_SHARE, limit
from torch_loom.chips.rates import GUESSED_DRAM_SHARE, rates

# Figures are written with five digits.
TOLERANCE = 1.001


def beyond_limits(chip: Chip) -> list[str]:
    """Return a line for each figure of a chip that no hardware reaches: its key, its value, what is allowed.

    Shares of a peak are at most 1.1, a kernel starts within 20 microseconds, bytes that must be moved take at
    most 0.95 of the DRAM's rate (``dram_share`` times the ``memory_share`` of a family), and a core reads at
    most 64 bytes a cycle of the cache that all share.
    """
    share = chip.dram_share or GUESSED_DRAM_SHARE
    found = []
    sustained = rates(chip).sustained
    if chip.dram_share > MAX_DRAM_SHARE * TOLERANCE:
        found.append(f"dram_share = {chip.dram_share:g}. Allowed: at most {MAX_DRAM_SHARE}")
    fastest = rates(chip).max_cache_bytes_per_ns
    if chip.l2_gbps * chip.derating > fastest * TOLERANCE:
        found.append(f"l2_gbps = {chip.l2_gbps:g}. Allowed: at most {fastest:g}")
    for family, table in chip.efficiency.items():
        for name, value in table.items():
            most = limit(family, name, share, sustained)
            if value > most * TOLERANCE:
                found.append(f"efficiency.{family}.{name} = {value:g}. Allowed: at most {most:g}")
    return found
