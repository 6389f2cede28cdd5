"""The cost model of a chip: rates, coefficients, and what an op or a kernel takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from torch_loom.chips.cost.families import FAMILIES, given_or_like
from torch_loom.chips.cost.formulas import FORMULAS, Rates, Time
from torch_loom.chips.cost.lower import lower
from torch_loom.chips.cost.records import Kernel, Op


class Estimate(NamedTuple):
    """Device time of an op in seconds, the parts of its kernels, and how many kernels it has.

    Parts overlap: ``compute`` and ``memory`` may add up to more than ``seconds``.
    """

    seconds: float
    compute: float
    memory: float
    launch: float
    kernels: int


class CostModel:
    """What a chip takes for an op.

    Args:
        rates: the chip's figures.
        coefficients: of each family of kernels; a missing family has those of the one that it is
            like, or its defaults.
    """

    def __init__(self, rates: Rates, coefficients: Mapping[str, Mapping[str, float]] | None = None) -> None:
        self.rates = rates
        given = coefficients or {}
        self.coefficients = {family: given_or_like(family, given) for family in FAMILIES}
        self._formulas = {
            name: (FORMULAS[family.formula], self.coefficients[name]) for name, family in FAMILIES.items()
        }
        self._seen: dict[Kernel, Time] = {}

    def time(self, kernel: Kernel) -> Time:
        """Return the nanoseconds of one kernel."""
        found = self._seen.get(kernel)
        if found is None:
            formula, coefficients = self._formulas[kernel.family]
            found = formula(kernel, coefficients, self.rates)
            self._seen[kernel] = found
        return found

    def total_ns(self, kernels: Iterable[Kernel]) -> float:
        """Return the nanoseconds of kernels that run one after the other. Keeps none: the clock asks once."""
        total = 0.0
        for kernel in kernels:
            formula, coefficients = self._formulas[kernel.family]
            total += formula(kernel, coefficients, self.rates).total_ns
        return total

    def cost(self, op: Op) -> Estimate:
        """Return what an op takes; 0 seconds for a view."""
        times = [self.time(kernel) for kernel in lower(op)]
        return Estimate(
            sum(time.total_ns for time in times) * 1e-9,
            sum(time.compute_ns for time in times) * 1e-9,
            sum(time.memory_ns for time in times) * 1e-9,
            sum(time.launch_ns for time in times) * 1e-9,
            len(times),
        )
