"""Fits the coefficients of the families to timings, and says how far off they are on timings left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torch_loom.chips.cost.batched import BATCHED, Columns
from torch_loom.chips.cost.families import COEFFICIENTS, FAMILIES, GRADES, limit
from torch_loom.chips.cost.formulas import Rates
from torch_loom.chips.cost.model import CostModel
from torch_loom.chips.cost.records import Kernel

Vector = NDArray[np.float64]

# How far a coefficient may stray from where it began before that costs as much as an error of a tenth.
PRIOR = 0.02
# The same for a coefficient of two-byte elements against that of larger ones, which predicts it.
TWIN_PRIOR = 0.05
# Beyond this error a timing counts linearly: a kernel that took another algorithm must not bend the curve.
ROBUST_ERROR = 0.1
# A coefficient is fitted where its logarithm moves those of so many timings so much.
LEAST_TIMINGS, LEAST_SLOPE = 2, 0.02
STARTS = 8
SPREAD = 0.4
POLISHED = 4


# How much larger in logarithms each factor of an alignment begins than that of the better one.
GRADE_STEP = 0.1

# Free coefficients of this family are fields of the rates, within these limits.
RATES = "rates"
RATE_LIMITS: Mapping[str, tuple[float, float]] = {
    "dram_bytes_per_ns": (1e-3, 1e6),
    "cache_bytes_per_ns": (1e-3, 1e6),
    "cache_full_share": (0.05, 0.99),
    "cache_none_share": (0.1, 4.0),
    "cache_write_cost": (0.5, 2.5),
}


def rate_limits(rates: Rates) -> dict[str, tuple[float, float]]:
    """Return the limits of a card's rates: no cache is faster than the cores that read it."""
    low, high = RATE_LIMITS["cache_bytes_per_ns"]
    return {**RATE_LIMITS, "cache_bytes_per_ns": (low, min(high, rates.max_cache_bytes_per_ns))}


def moved(rates: Rates, fitted: Mapping[str, float]) -> Rates:
    """Return the rates with those that a fit found in the place of their own."""
    changes: dict[str, Any] = dict(fitted)
    return rates._replace(**changes)


class Timing(NamedTuple):
    """Kernels that ran one after the other, how often each, and the nanoseconds that they took together."""

    name: str
    kernels: Mapping[Kernel, int]
    took_ns: float
    weight: float = 1.0
    card: int = 0
    """Which of the cards that a fit is for: their rates differ, their coefficients do not."""


def levenberg(residuals: Callable[[Vector], Vector], start: Vector, steps: int = 30) -> tuple[Vector, float]:
    """Minimise the sum of squares with numeric derivatives; deterministic."""
    x = start.copy()
    r = residuals(x)
    cost, damping = float(r @ r), 1e-2
    for _ in range(steps):
        jacobian = np.empty((len(r), len(x)))
        for column in range(len(x)):
            moved = x.copy()
            moved[column] += 1e-4
            jacobian[:, column] = (residuals(moved) - r) / 1e-4
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ r
        gained = 0.0
        for _ in range(12):
            step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-6), gradient)
            candidate = x + np.clip(step, -1.0, 1.0)
            r_new = residuals(candidate)
            new = float(r_new @ r_new)
            if math.isfinite(new) and new < cost:
                gained = (cost - new) / cost
                x, r, cost, damping = candidate, r_new, new, max(damping / 5.0, 1e-8)
                break
            damping *= 4.0
        if gained < 1e-4:
            break
    return x, cost


def _robust(error: Vector) -> Vector:
    """Return residuals whose squares grow only linearly beyond ROBUST_ERROR."""
    size = np.abs(error)
    outer = np.sqrt(np.maximum(2.0 * ROBUST_ERROR * size - ROBUST_ERROR**2, 0.0))
    return np.asarray(np.where(size <= ROBUST_ERROR, error, np.sign(error) * outer))


def graded(found: dict[str, dict[str, float]], told: Sequence[tuple[str, str]]) -> None:
    """Make the factors of each family's alignments grow from grade to grade: no worse one is faster.

    Those that the timings tell are taken as they are, a worse one no smaller than a better; the others
    follow, where there is a told one.
    """
    for family, c in found.items():
        names = [name for name in GRADES if name in c]
        of_data = [name for name in names if (family, name) in told]
        least = 1.0
        for name in of_data:
            least = c[name] = max(c[name], least)
        if of_data:
            for name in names[names.index(of_data[0]) + 1 :]:
                if name not in of_data:
                    c[name] = max(c[name], c[names[names.index(name) - 1]])
            most = math.inf
            for name in reversed(names):
                most = c[name] if name in of_data else min(c[name], most)
                c[name] = most


class _Part:
    """The kernels of a family on a card, and in which timings each occurs how often."""

    def __init__(self, uses: Mapping[Kernel, Sequence[tuple[int, int]]]) -> None:
        self.columns = Columns(list(uses))
        places = [
            (place, number, count) for place, each in enumerate(uses.values()) for number, count in each
        ]
        self.kernel, self.timing, self.count = (np.array(each) for each in zip(*places, strict=True))

    def summed(self, took: Vector, timings: int) -> Vector:
        """Return what each timing's kernels take together."""
        weights = took[self.kernel] * self.count
        return np.asarray(np.bincount(self.timing, weights=weights, minlength=timings), dtype=np.float64)


class _Problem:
    """Timings, and which coefficients of which families are free."""

    def __init__(
        self,
        timings: Sequence[Timing],
        rates: Sequence[Rates],
        start: Mapping[str, Mapping[str, float]],
        free: Sequence[tuple[str, str]],
        prior: float = PRIOR,
        dram_share: float = 1.0,
    ) -> None:
        self.prior = prior
        self.timings = timings
        self.rates = rates
        self.model = CostModel(rates[0], start).coefficients
        self.free = list(free)
        self.moves_rates = any(family == RATES for family, _ in self.free)
        if self.moves_rates:
            self.model[RATES] = {name: float(getattr(rates[0], name)) for name in RATE_LIMITS}
        of_rates = rate_limits(rates[0])
        limits = [
            of_rates[name]
            if family == RATES
            else (COEFFICIENTS[name].low, limit(family, name, dram_share, rates[0].sustained))
            for family, name in self.free
        ]
        self.low, self.high = np.log([low for low, _ in limits]), np.log([high for _, high in limits])
        begun = np.log([self.model[family][name] for family, name in self.free])
        self.start = np.clip(begun, self.low, self.high)
        self.touched = {family for family, _ in self.free}
        for family in self.touched:
            # A factor that begins below that of a better alignment would have no slope: see graded().
            places = [self.free.index((family, name)) for name in GRADES if (family, name) in self.free]
            self.start[places] = np.sort(self.start[places]) + GRADE_STEP * np.arange(len(places))
        self.took = np.array([timing.took_ns for timing in timings])
        self.weight = np.array([timing.weight for timing in timings])
        self.fixed = np.zeros(len(timings))
        models = [CostModel(each, start) for each in rates]
        uses: dict[tuple[str, int], dict[Kernel, list[tuple[int, int]]]] = {}
        for number, timing in enumerate(timings):
            for kernel, count in timing.kernels.items():
                if kernel.family in self.touched:
                    mine = uses.setdefault((kernel.family, timing.card), {})
                    mine.setdefault(kernel, []).append((number, count))
                else:
                    self.fixed[number] += models[timing.card].time(kernel).total_ns * count
        self.parts = {key: _Part(found) for key, found in uses.items()}
        self.memory: dict[tuple[str, int], tuple[tuple[object, ...], Vector]] = {}
        place = {pair: number for number, pair in enumerate(self.free)}
        self.twins = [
            (number, place[family, name.replace("_16", "_32")])
            for (family, name), number in place.items()
            if name.endswith("_16") and (family, name.replace("_16", "_32")) in place
        ]

    def coefficients(self, x: Vector) -> dict[str, dict[str, float]]:
        found = {family: dict(self.model[family]) for family in self.touched}
        for (family, name), value in zip(self.free, np.clip(x, self.low, self.high), strict=True):
            found[family][name] = float(np.exp(value))
        graded(found, self.free)
        return found

    def predicted(self, x: Vector) -> Vector:
        total: Vector = self.fixed.copy()
        coefficients = self.coefficients(x)
        changes = coefficients.pop(RATES, {})
        for (family, card), part in self.parts.items():
            rates = moved(self.rates[card], changes) if changes else self.rates[card]
            c = coefficients[family]
            key = (*c.values(), *rates[2:5], *rates[8:])
            seen = self.memory.get((family, card))
            if seen is None or seen[0] != key:
                took = BATCHED[FAMILIES[family].formula](part.columns, c, rates)
                seen = (key, part.summed(took, len(self.timings)))
                self.memory[family, card] = seen
            total += seen[1]
        return total

    def residuals(self, x: Vector) -> Vector:
        """Return weighted errors, large ones damped, and how far the coefficients have strayed.

        The error is a share of what was measured, as reports give it.
        """
        error = self.predicted(x) / self.took - 1.0
        return np.concatenate([_robust(error) * self.weight, self.strayed(x)])

    def plain(self, x: Vector) -> Vector:
        """Return the same with large errors in full: what finds the way from a far start."""
        error = np.log(np.maximum(self.predicted(x), 1e-9) / self.took)
        return np.concatenate([error * self.weight, self.strayed(x)])

    def strayed(self, x: Vector) -> Vector:
        """Return how far coefficients are from their start, and those for two widths from each other."""
        away = x - self.start
        apart = [TWIN_PRIOR * (away[narrow] - away[wide]) for narrow, wide in self.twins]
        return np.concatenate([self.prior * away, np.array(apart)])


# Whole choices and flags: no slope leads to them.
HELD = ("joined", "products", "least_tile", "winograd")


def free_coefficients(families: Sequence[str], fixed: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return the coefficients of these families that a fit may move: all but flags and those in ``fixed``."""
    held = {*HELD, *fixed}
    return [(family, name) for family in families for name in FAMILIES[family].defaults if name not in held]


def told_by(
    timings: Sequence[Timing],
    rates: Rates | Sequence[Rates],
    free: Sequence[tuple[str, str]],
    start: Mapping[str, Mapping[str, float]] | None = None,
    dram_share: float = 1.0,
) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return, for each free coefficient, the numbers of the timings that change enough with it.

    They change by LEAST_SLOPE or more where it doubles, at the start or where the coefficient is four times
    as large or as small: of these three places the one that most timings tell counts.
    """
    cards = [rates] if isinstance(rates, Rates) else list(rates)
    problem = _Problem(timings, cards, start or {}, free, PRIOR, dram_share)
    found: dict[tuple[str, str], tuple[int, ...]] = {}
    for number, pair in enumerate(problem.free):
        found[pair] = ()
        for begin in (0.0, math.log(4.0), -math.log(4.0)):
            x = problem.start.copy()
            x[number] = (
                float(np.clip(x[number] + begin, problem.low[number] + 0.1, problem.high[number])) - 0.1
            )
            more = x.copy()
            more[number] += 0.1
            slope = np.abs(np.log(problem.predicted(more) / problem.predicted(x))) / 0.1
            told = tuple(np.flatnonzero(slope >= LEAST_SLOPE).tolist())
            found[pair] = max(found[pair], told, key=len)
    return found


def least_timings(count: int) -> int:
    """Return how many of some timings must tell a coefficient: two, or one of fewer than eight."""
    return min(LEAST_TIMINGS, max(1, count // 4))


def identified(
    timings: Sequence[Timing],
    rates: Rates | Sequence[Rates],
    free: Sequence[tuple[str, str]],
    start: Mapping[str, Mapping[str, float]] | None = None,
    dram_share: float = 1.0,
) -> list[tuple[str, str]]:
    """Return those of the free coefficients that enough of the timings tell; others stay.

    :func:`told_by` says which timings tell a coefficient.
    """
    return enough(told_by(timings, rates, free, start, dram_share), len(timings))


def enough(found: Mapping[tuple[str, str], Sequence[int]], count: int) -> list[tuple[str, str]]:
    """Return those coefficients that enough of so many timings tell; ``found`` is of :func:`told_by`."""
    free, least = list(found), least_timings(count)
    told = [pair for pair in free if len(found[pair]) >= least]
    # How short work is spared tells itself only where long work is slowed down.
    slowed = [(family, "derate_ns") for family, name in told if name == "derate"]
    return [*told, *(pair for pair in slowed if pair in found and pair not in told)]


def fit(
    timings: Sequence[Timing],
    rates: Rates | Sequence[Rates],
    free: Sequence[tuple[str, str]],
    start: Mapping[str, Mapping[str, float]] | None = None,
    starts: int = STARTS,
    prior: float = PRIOR,
    dram_share: float = 1.0,
) -> dict[str, dict[str, float]]:
    """Return coefficients by family that make the timings: those of ``start``, the free ones moved.

    Args:
        rates: of the chip, or of each card that the timings name.
        dram_share: of the DRAM's peak, the rate that ``rates`` has.
    """
    cards = [rates] if isinstance(rates, Rates) else list(rates)
    problem = _Problem(timings, cards, start or {}, free, prior, dram_share)
    noise = np.random.default_rng(0)
    found = []
    for attempt in range(max(1, starts)):
        offset = noise.normal(size=len(problem.start)) * SPREAD if attempt else 0.0
        found.append(levenberg(problem.plain, problem.start + offset))
    best: tuple[Vector, float] | None = None
    for x, _ in sorted(found, key=lambda each: each[1])[:POLISHED]:
        polished = levenberg(problem.residuals, x)
        if best is None or polished[1] < best[1]:
            best = polished
    assert best is not None
    return {**problem.model, **problem.coefficients(best[0])}


def predicted(
    timings: Sequence[Timing],
    rates: Rates | Sequence[Rates],
    coefficients: Mapping[str, Mapping[str, float]],
) -> Vector:
    """Return the nanoseconds that the model says for each timing."""
    models = [CostModel(each, coefficients) for each in ([rates] if isinstance(rates, Rates) else rates)]
    return np.array(
        [
            sum(models[timing.card].time(k).total_ns * n for k, n in timing.kernels.items())
            for timing in timings
        ]
    )


def folds(groups: Sequence[str], parts: int, seed: int = 0) -> NDArray[np.int64]:
    """Return which of ``parts`` each timing is held out with: each group is shuffled and dealt out evenly."""
    numbers = np.zeros(len(groups), dtype=np.int64)
    generator = np.random.default_rng(seed)
    for group in dict.fromkeys(groups):
        members = np.array([index for index, each in enumerate(groups) if each == group])
        numbers[generator.permutation(members)] = np.arange(len(members)) % parts
    return numbers
