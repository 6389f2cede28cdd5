"""From a sweep to a chip's coefficients: memory rates first, then families that occur together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torch_loom.chips.cost.families import FAMILIES, MAX_DRAM_SHARE, given_or_like
from torch_loom.chips.cost.fit import (
    RATE_LIMITS,
    RATES,
    STARTS,
    Timing,
    fit,
    folds,
    free_coefficients,
    identified,
    moved,
    predicted,
)
from torch_loom.chips.cost.formulas import ALGORITHMS, IMPLICIT, Rates
from torch_loom.chips.cost.sweep import Case

PARTS = 5
# What a library may have, by family: outputs of its smallest tile; Winograd's algorithm, or none.
CHOICES = {
    "batched_matmul_vector": ("least_tile", (1024.0, 4096.0, 8192.0, 16384.0)),
    "matmul_vector": ("least_tile", (8192.0, 1024.0)),
    "convolution_vector": ("winograd", (1.0, 0.0)),
    "convolution_dgrad_vector": ("winograd", (1.0, 0.0)),
}
# What moves memory and does nothing else: the rates of cache and DRAM come from these.
STREAMS = ("elementwise", "elementwise_heavy", "copy")


Coefficients = Mapping[str, Mapping[str, float]]


class Calibration(NamedTuple):
    """A chip's measured rates, and coefficients of the families that were timed."""

    rates: Rates
    coefficients: Mapping[str, Mapping[str, float]]


def timings(cases: Sequence[Case], card: int = 0, as_ran: bool = False) -> list[Timing]:
    """Return cases of a sweep as the fit takes them; those without kernels of one chip are left out.

    With ``as_ran`` convolutions count by the algorithm that ran, where the sweep says which: its coefficients
    are fitted to what it took. One of another class than the lowering gives it tells nothing and is left out.
    """
    found = []
    for case in cases:
        kernels = case.kernels
        if as_ran and case.ran and kernels and FAMILIES[kernels[-1].family].formula == "vector_convolution":
            kernel = kernels[-1]
            if (kernel.rows > 0 and kernel.batch == 1) == (case.ran == IMPLICIT):
                continue
            kernels = (*kernels[:-1], kernel._replace(items=ALGORITHMS.index(case.ran) + 1.0))
        if kernels:
            found.append(Timing(case.name, Counter(kernels), case.device_ns, card=card))
    return found


def components(measured: Sequence[Timing]) -> list[tuple[list[str], list[Timing]]]:
    """Return families that occur in the same timings, with those timings: they must be fitted together."""
    groups: list[tuple[set[str], list[Timing]]] = []
    for timing in measured:
        families = {kernel.family for kernel in timing.kernels}
        inside = [group for group in groups if group[0] & families]
        outside = [group for group in groups if not group[0] & families]
        merged = families.union(*(group[0] for group in inside))
        groups = [*outside, (merged, [each for group in inside for each in group[1]] + [timing])]
    return [(sorted(families), members) for families, members in groups if families]


def calibrate(
    measured: Sequence[Timing],
    rates: Rates,
    starts: int = STARTS,
    start: Coefficients | None = None,
    dram_peak: float = 0.0,
) -> Calibration:
    """Fit memory rates, then every family that occurs; ``rates`` has what is known of the chip.

    Args:
        start: coefficients to begin with.
        dram_peak: bytes per nanosecond of the DRAM's peak; 0: it is not known, and bounds nothing.
    """
    rates = memory_rates(measured, rates, dram_peak or math.inf)
    share = rates.dram_bytes_per_ns / dram_peak if dram_peak else MAX_DRAM_SHARE
    coefficients = fit_families(measured, [rates], start, starts, share)
    return Calibration(rates, coefficients)


def memory_rates(measured: Sequence[Timing], rates: Rates, dram_peak: float) -> Rates:
    """Return the rates with those of DRAM and cache that a card's streams show; others stay."""
    streams = [each for each in measured if {kernel.family for kernel in each.kernels} <= set(STREAMS)]
    if not streams:
        return rates
    free = free_coefficients(STREAMS, ("memory_share",))
    # Where nothing fits into the cache, nothing says how fast it is.
    smallest = min(kernel.footprint_bytes for each in streams for kernel in each.kernels)
    names = (
        list(RATE_LIMITS) if smallest < rates.cache_bytes * rates.cache_full_share else ["dram_bytes_per_ns"]
    )
    found = fit(streams, rates, [*free, *((RATES, name) for name in names)], starts=1)[RATES]
    found["dram_bytes_per_ns"] = min(found["dram_bytes_per_ns"], MAX_DRAM_SHARE * dram_peak)
    return moved(rates, {name: found[name] for name in names})


def fit_families(
    measured: Sequence[Timing],
    rates: Sequence[Rates],
    start: Coefficients | None = None,
    starts: int = STARTS,
    dram_share: float = 0.9,
    also_bare: bool = False,
) -> dict[str, Mapping[str, float]]:
    """Return the coefficients of every family that occurs in timings of one or more cards.

    With ``also_bare`` fits begin once with the curves of ``start``, as of another card, and once without.
    """
    coefficients: dict[str, Mapping[str, float]] = {}
    for families, members in components(measured):
        best: tuple[float, dict[str, dict[str, float]]] | None = None
        bare = {family: curve for family, curve in (start or {}).items() if family not in families}
        for begun in [*_choices(families, start or {}), *(_choices(families, bare) if also_bare else ())]:
            known = {**begun, **coefficients}
            free = identified(members, rates, free_coefficients(families), known, dram_share)
            found = fit(members, rates, free, known, starts, dram_share=dram_share)
            took = np.array([each.took_ns for each in members])
            error = float(np.abs(predicted(members, rates, found) / took - 1.0).mean())
            if best is None or error < best[0]:
                best = error, found
        assert best is not None
        coefficients.update({family: best[1][family] for family in families})
    return coefficients


def _choices(families: Sequence[str], start: Coefficients) -> Iterator[Coefficients]:
    """Return what fits begin with, one for each thing that a library may have."""
    for family, (name, values) in CHOICES.items():
        if family in families:
            for value in values:
                yield {**start, family: {**given_or_like(family, start), name: value}}
            return
    yield start


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
