"""At what rate a card can go on computing: what its board's power allows for, from its data sheet.

A card's clock follows its power. Dense arithmetic takes an energy for each operation that depends on the
process the chip is made in, and rises with the clock, since a higher clock needs a higher voltage. Where all
cores at the boost clock would draw more than the board may, the clock goes down until they do not. A T4 of
70 watts so goes on at six tenths of its peak of float32, where a V100 of 250 watts has no such limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch_loom.chips.chip import Chip
from torch_loom.chips.cost.lowerings.common import MATRIX_UNITS


class Energy(NamedTuple):
    """Picojoules of one operation at 1 GHz: of float32 on vector units, of 16 bits on matrix units."""

    vector: float
    matrix: float


# The energies are from measured rates of large products, in TFLOP/s: [public] is NeuSight, DeepBench,
# [torch] https://github.com/zzc0721/torch-performance-test-data, database.md and its issues 9, 120 and 185:
# one benchmark of torch.matmul, sizes up to 10240, on many cards.
#
# 12 nm: a T4 that draws its 70 W, 10 of them idle, does 4.2 of float32 ([public]: 3.4 in NeuSight, 4.4 in
# DeepBench; [torch] 4.2 to 4.4) and 42 of float16 ([public] 43; [torch] 42), at 0.93 and 1.2 GHz.
# 16 nm: a P4 of 75 W goes on at 4.1 of float32 ([torch] 4.0 to 4.2), at 0.84 GHz. TSMC says that 12FFC takes
# 25% less power than 16FFC, which fits: 18 by 14.3.
# 4N: an L4 of 72 W goes on at 11.1 of float32 and 55 of 16 bits ([torch], 8192 and larger), at 1.1 GHz.
# 8 nm: an A4000 of 140 W draws no more than that for 11.9 and 65 ([torch]): at most 8.4 and 1.5. Samsung says
# 40% less for 10LPE than for 14LPE, 15% less for 10LPP and 10% less for 8LPP: 0.46 of 14 nm; between the two.
# 7 nm, 28 nm: by what TSMC says of N7 (60% less than 16FF) and 16FF+ (70% less than 28HPM).
# Hopper has the vector units of 4N; its matrix units read operands from shared memory: an H100 PCIe of 350 W
# does 475 at 1.4 GHz ([torch]), a B200 of 1000 W 1650 at 1.7 GHz.
ENERGIES: Mapping[tuple[int, int], Energy] = {
    (3, 7): Energy(60.0, 60.0),
    # Without matrix units: one instruction does two operations of float16, or converts to float32.
    (6, 0): Energy(18.0, 9.0),
    (6, 1): Energy(18.0, 18.0),
    (7, 0): Energy(14.3, 1.3),
    (7, 5): Energy(14.3, 1.3),
    (8, 0): Energy(7.2, 0.7),
    (8, 6): Energy(8.0, 1.5),
    (8, 9): Energy(5.0, 0.95),
    (9, 0): Energy(5.0, 0.48),
    (10, 0): Energy(5.0, 0.4),
    (12, 0): Energy(5.0, 0.95),
}
# How the energy grows with the clock: 4N takes 5.2 pJ at 1.2 GHz (an L4) and 6.8 at 1.95 GHz (an L40S that
# does 46.9 of float32 at 350 W, [torch]), 12 nm 14 at 0.93 and about 17 at 1.4 to 1.5 GHz (V100).
CLOCK_POWER = 0.5
# What large products reach of a peak where power does not matter: [public] and [torch].
MATRIX_REACHES = 0.85
VECTOR_REACHES, ISSUE_REACHES = 0.9, 0.7
_NVIDIAS = ("NVIDIA", "Tesla", "GeForce", "Quadro", "RTX")
# Instructions for 32 threads that a core starts in a cycle: before Volta its four schedulers started two each
# (NVIDIA CUDA C++ Programming Guide, compute capabilities 6.1 and 7.0).
_STARTS, _STARTS_TWICE = 4, 8


def is_issue_bound(chip: Chip) -> bool:
    """Return whether a chip's cores have a lane of float32 for each thread that they can start in a cycle.

    Cores of Volta, Turing, the A100 and before have half as many, so that addresses and loads cost no
    arithmetic. In those of GA102, Ada, Hopper and later such instructions take its place: large products of
    float32 reach seven tenths of the peak, not nine.
    """
    if not (chip.num_cores and chip.clock_mhz and chip.warp_size == 32 and "float32" in chip.peak_tflops):
        return False
    lanes = chip.peak_tflops["float32"] * 1e6 / (2.0 * chip.num_cores * chip.clock_mhz)
    return lanes / (chip.warp_size * (_STARTS if chip.capability_major >= 7 else _STARTS_TWICE)) > 0.8


def sustained_share(chip: Chip, dtype: str) -> float:
    """Return the share of its peak of a dtype at which a card's power lets it go on; 1: no limit is known."""
    # Other vendors number their architectures as well.
    is_nvidia = chip.product_name.startswith(_NVIDIAS)
    energy = ENERGIES.get((chip.capability_major, chip.capability_minor)) if is_nvidia else None
    peak = chip.peak_tflops.get(dtype, 0.0)
    if energy is None or not (chip.product_name and chip.power_max_watts and chip.clock_mhz and peak):
        return 1.0
    is_matrix = dtype in MATRIX_UNITS
    # An operation of twice the bits takes twice the energy, on units of half the rate.
    wide = chip.peak_tflops.get("float16", peak) / peak if is_matrix else 1.0
    reaches = MATRIX_REACHES if is_matrix else ISSUE_REACHES if is_issue_bound(chip) else VECTOR_REACHES
    each = (energy.matrix if is_matrix else energy.vector) * wide
    drawn = each * (chip.clock_mhz / 1e3) ** CLOCK_POWER * peak * reaches
    allowed = chip.power_max_watts - chip.power_idle_watts
    if allowed <= 0.0:
        return 1.0  # figures that say nothing of a limit
    return float(min(1.0, (allowed / drawn) ** (1.0 / (1.0 + CLOCK_POWER))))
