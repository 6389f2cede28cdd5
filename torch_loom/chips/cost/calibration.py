"""From a sweep to a chip's coefficients: memory rates first, then families that occur together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torch_loom.chips.cost.fit import (
    RATE_LIMITS,
    RATES,
    STARTS,
    Timing,
    fit,
    folds,
    free_coefficients,
    moved,
    predicted,
)
from torch_loom.chips.cost.formulas import Rates
from torch_loom.chips.cost.sweep import Case

PARTS = 5
# What moves memory and does nothing else: the rates of cache and DRAM come from these.
STREAMS = ("elementwise", "elementwise_heavy", "copy")


class Calibration(NamedTuple):
    """A chip's measured rates, and coefficients of the families that were timed."""

    rates: Rates
    coefficients: Mapping[str, Mapping[str, float]]


def timings(cases: Sequence[Case]) -> list[Timing]:
    """Return cases of a sweep as the fit takes them."""
    return [Timing(case.name, Counter(case.kernels), case.device_ns) for case in cases]


def _components(measured: Sequence[Timing]) -> list[tuple[list[str], list[Timing]]]:
    """Return families that occur in the same timings, with those timings: they must be fitted together."""
    groups: list[tuple[set[str], list[Timing]]] = []
    for timing in measured:
        families = {kernel.family for kernel in timing.kernels}
        inside = [group for group in groups if group[0] & families]
        outside = [group for group in groups if not group[0] & families]
        merged = families.union(*(group[0] for group in inside))
        groups = [*outside, (merged, [each for group in inside for each in group[1]] + [timing])]
    return [(sorted(families), members) for families, members in groups if families]


def calibrate(measured: Sequence[Timing], rates: Rates, starts: int = STARTS) -> Calibration:
    """Fit memory rates, then every family that occurs; ``rates`` has what is known of the chip."""
    streams = [each for each in measured if {kernel.family for kernel in each.kernels} <= set(STREAMS)]
    if streams:
        free = free_coefficients(STREAMS, ("memory_share",)) + [(RATES, name) for name in RATE_LIMITS]
        rates = moved(rates, fit(streams, rates, free, starts=1)[RATES])
    coefficients: dict[str, Mapping[str, float]] = {}
    for families, members in _components(measured):
        fitted = fit(members, rates, free_coefficients(families), coefficients, starts)
        coefficients.update({family: fitted[family] for family in families})
    return Calibration(rates, coefficients)


def held_out(
    cases: Sequence[Case], rates: Rates, groups: Sequence[str], parts: int = PARTS, starts: int = STARTS
) -> NDArray[np.float64]:
    """Return nanoseconds for each case from fits that saw neither it nor the others of its part.

    Args:
        groups: one name per case; each group is dealt out evenly over the parts.
    """
    return held_out_parts(cases, rates, folds(groups, parts).tolist(), starts)


def shape_parts(shapes: Sequence[tuple[str, tuple[int, ...]]], parts: int = PARTS) -> list[int]:
    """Return a part for each op and shape; the shapes of an op are dealt out evenly."""
    return list(folds([op for op, _ in shapes], parts).tolist())


def held_out_parts(
    cases: Sequence[Case], rates: Rates, part_of: Sequence[int], starts: int = STARTS
) -> NDArray[np.float64]:
    """Return nanoseconds for each case from fits that saw none of its part."""
    measured = timings(cases)
    numbers = np.array(part_of)
    found = np.zeros(len(cases))
    for part in sorted(set(part_of)):
        inside = [timing for timing, number in zip(measured, numbers, strict=True) if number != part]
        outside = np.flatnonzero(numbers == part)
        fitted = calibrate(inside, rates, starts)
        found[outside] = predicted([measured[i] for i in outside], *fitted)
    return found
