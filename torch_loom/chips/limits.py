"""What a description claims beyond what hardware can do: where a fit without bounds may end."""

from __future__ import annotations

from torch_loom.chips.chip import Chip
from torch_loom.chips.cost.families import MAX_DRAM_SHARE, MAX_FLOP_SHARE, limit
from torch_loom.chips.cost.records import Op, Tensor
from torch_loom.chips.rates import GUESSED_DRAM_SHARE, model, rates, roofline
from torch_loom.chips.relatives import is_alike, line

# Figures are written with five digits.
TOLERANCE = 1.001
# A product that keeps all cores busy for long, in each of these dtypes.
LARGE_PRODUCT = 8192
PRODUCT_DTYPES = ("float32", "float16", "bfloat16")


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
    return found or _beyond_peak(chip)


def _beyond_peak(chip: Chip) -> list[str]:
    """Return a line for each dtype whose large products are forecast faster than the chip's peak.

    A card that was measured may clock a tenth higher than its data sheet says; one that was not is taken to
    do what the sheet says.
    """
    found = []
    cost = model(chip)
    size = LARGE_PRODUCT
    for dtype in PRODUCT_DTYPES:
        if dtype not in chip.peak_tflops:
            continue
        matrix = Tensor.dense(dtype, size, size)
        op = Op("mm", (matrix, matrix), (matrix,))
        share = 2.0 * size**3 / cost.cost(op).seconds / roofline(chip, dtype)[0]
        family = "matmul_vector" if dtype == "float32" else "matmul"
        is_measured = any(is_alike(each, chip) and family in each.efficiency for each in line(chip))
        most = MAX_FLOP_SHARE if is_measured else 1.0
        if share > most * TOLERANCE:
            found.append(
                f"mm of {size} x {size} in {dtype} at {share:.3g} of the peak. Allowed: at most {most:g}"
            )
    return found
