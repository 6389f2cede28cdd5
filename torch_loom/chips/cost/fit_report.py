"""A fit of a sweep that keeps what the data cannot tell, and says what each coefficient is told by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torch_loom.chips.cost.calibration import (
    CHOICES,
    STREAMS,
    Calibration,
    components,
    fit_families,
    memory_rates,
)
from torch_loom.chips.cost.families import FAMILIES, given_or_like
from torch_loom.chips.cost.fit import (
    LEAST_SLOPE,
    RATE_LIMITS,
    RATES,
    STARTS,
    Timing,
    enough,
    folds,
    free_coefficients,
    least_timings,
    predicted,
    told_by,
)
from torch_loom.chips.cost.formulas import Rates

Coefficients = Mapping[str, Mapping[str, float]]


class Told(NamedTuple):
    """What the timings of a family tell.

    Attributes:
        timings: with kernels of it.
        by: for each of its coefficients, how many of them tell it; 0: none, and it is kept from the base.
    """

    timings: int
    by: Mapping[str, int]

    @property
    def kept(self) -> tuple[str, ...]:
        """The coefficients that are kept from the base."""
        return tuple(name for name, count in self.by.items() if not count)


class SweepFit(NamedTuple):
    """Rates and coefficients, those that the timings do not tell as they are in the base.

    Attributes:
        found: all rates, and the coefficients of each family of which a coefficient is told.
        told: by family, those that were timed; the rates of memory as the family ``rates``.
    """

    found: Calibration
    told: Mapping[str, Told]


def fit_sweep(
    measured: Sequence[Timing], rates: Rates, start: Coefficients, dram_peak: float, starts: int = STARTS
) -> SweepFit:
    """Fit memory rates and the families that occur, beginning with what is known of the base.

    Args:
        rates: of the base.
        start: its coefficients.
        dram_peak: bytes per nanosecond of the DRAM's peak.
    """
    of_rates = _told_rates(measured, rates, start)
    fitted = memory_rates(measured, rates, dram_peak)
    kept = {name: getattr(rates, name) for name in of_rates.kept}
    kept_rates = fitted._replace(**kept)
    share = kept_rates.dram_bytes_per_ns / dram_peak
    found = fit_families(measured, [kept_rates], start, starts, share)
    told = {RATES: of_rates, **_told_families(measured, kept_rates, start, found, share)}
    known = {family: table for family, table in found.items() if any(told[family].by.values())}
    for family, table in known.items():
        mine = given_or_like(family, start)
        known[family] = {
            name: value if told[family].by.get(name) or name.startswith("unaligned") else mine[name]
            for name, value in table.items()
        }
    return SweepFit(Calibration(kept_rates, known), told)


def _told_rates(measured: Sequence[Timing], rates: Rates, start: Coefficients) -> Told:
    """Return what streams tell of the memory's rates."""
    streams = [each for each in measured if {kernel.family for kernel in each.kernels} <= set(STREAMS)]
    if not streams:
        return Told(0, dict.fromkeys(RATE_LIMITS, 0))
    # A family that is free stands among the kernels that are looked at.
    pairs = [*free_coefficients(STREAMS), *((RATES, name) for name in RATE_LIMITS)]
    by = told_by(streams, rates, pairs, start)
    least = least_timings(len(streams))
    counts = {name: len(each) for (family, name), each in by.items() if family == RATES}
    return Told(len(streams), {name: count if count >= least else 0 for name, count in counts.items()})


def _told_families(
    measured: Sequence[Timing], rates: Rates, start: Coefficients, found: Coefficients, share: float
) -> dict[str, Told]:
    """Return what each family's timings tell; families that occur together are looked at together."""
    told: dict[str, Told] = {}
    for families, members in components(measured):
        begun = {**start, **{family: _chosen(family, start, found) for family in families}}
        pairs = free_coefficients(families)
        by = told_by(members, rates, pairs, begun, share)
        free = set(enough(by, len(members)))
        for family in families:
            mine = [each for each in members if any(kernel.family == family for kernel in each.kernels)]
            counts = {}
            for name in FAMILIES[family].defaults:
                pair = (family, name)
                if pair in by:
                    counts[name] = max(1, len(by[pair])) if pair in free else 0
                else:
                    counts[name] = _choice_told_by(family, name, mine, rates, start, found)
            told[family] = Told(len(mine), counts)
    return told


def _chosen(family: str, start: Coefficients, found: Coefficients) -> dict[str, float]:
    """Return what a family's fit began with: the base's coefficients, with the choice that was best."""
    begun = given_or_like(family, start)
    if family in CHOICES:
        name = CHOICES[family][0]
        begun[name] = found[family][name]
    return begun


def _choice_told_by(
    family: str,
    name: str,
    mine: Sequence[Timing],
    rates: Rates,
    start: Coefficients,
    found: Coefficients,
) -> int:
    """Return how many timings tell a flag that no fit moves, where another value than the base's was best."""
    base = given_or_like(family, start)[name]
    if family not in CHOICES or CHOICES[family][0] != name or found[family][name] == base:
        return 0
    times = [
        predicted(mine, rates, {**start, **found, family: {**found[family], name: value}})
        for value in (base, found[family][name])
    ]
    count = int((np.abs(np.log(times[1] / times[0])) >= LEAST_SLOPE).sum())
    return count if count >= least_timings(len(mine)) else 0


def held_out(
    measured: Sequence[Timing],
    groups: Sequence[str],
    parts: int,
    rates: Rates,
    start: Coefficients,
    dram_peak: float,
) -> NDArray[np.float64]:
    """Return nanoseconds for each timing from fits that saw neither it nor the others of its part.

    Args:
        groups: one name per timing; each group is dealt out evenly over the parts.
    """
    part_of = folds(groups, parts)
    found = np.zeros(len(measured))
    for part in sorted(set(part_of.tolist())):
        inside = [each for each, number in zip(measured, part_of, strict=True) if number != part]
        outside = np.flatnonzero(part_of == part).tolist()
        fitted = fit_sweep(inside, rates, start, dram_peak).found
        coefficients = {**start, **fitted.coefficients}
        found[outside] = predicted([measured[place] for place in outside], fitted.rates, coefficients)
    return found
