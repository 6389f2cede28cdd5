"""A fit keeps what its timings do not tell, and says how many tell the rest."""

from __future__ import annotations

from collections import Counter

import pytest

from torch_loom import chips
from torch_loom.chips.cost import CostModel, sweep
from torch_loom.chips.cost.families import defaults, given_or_like
from torch_loom.chips.cost.fit import RATES, Timing, identified, told_by
from torch_loom.chips.cost.fit_report import fit_sweep, held_out
from torch_loom.chips.rates import efficiency, rates

T4 = chips.load("t4")
START, RATE = efficiency(T4), rates(T4)
PEAK = RATE.dram_bytes_per_ns / T4.dram_share
LONG, SHORT = [1 << 22, 1 << 24, 1 << 25, 1 << 26], [16, 32, 64, 128]


def timed(op: str, sizes: list[int], model: CostModel, factor: float = 1.0) -> list[Timing]:
    """Return timings that a model makes of an op of these sizes."""
    found = []
    for size in sizes:
        kernels = sweep.lower(sweep.describe(op, [size], "float32"))
        found.append(Timing(f"{op} {size}", Counter(kernels), model.total_ns(kernels) * factor))
    return found


def test_what_large_sizes_do_not_tell_stays_the_bases() -> None:
    """The base's start stays, where a fit that begins with the code's defaults would end at theirs."""
    base = given_or_like("elementwise", START)
    assert base["start_ns"] != defaults("elementwise")["start_ns"]
    told = fit_sweep(timed("add", LONG, CostModel(RATE, START), 1.1), RATE, START, PEAK, starts=1)
    assert told.told["elementwise"].by == {"start_ns": 0, "item_cycles": 0, "memory_share": 4}
    assert told.told["elementwise"].kept == ("start_ns", "item_cycles")
    assert told.told["elementwise"].timings == 4
    found = told.found.coefficients["elementwise"]
    assert (found["start_ns"], found["item_cycles"]) == (base["start_ns"], base["item_cycles"])
    # Nothing fits into the cache: its rate and shares are the base's, the memory's is not.
    assert told.told[RATES].by["dram_bytes_per_ns"] == 4
    assert set(told.told[RATES].kept) == set(told.told[RATES].by) - {"dram_bytes_per_ns"}
    assert told.found.rates.dram_bytes_per_ns != RATE.dram_bytes_per_ns
    assert told.found.rates[3:] == RATE[3:]


def test_what_small_sizes_tell() -> None:
    truth = CostModel(RATE, {**START, "elementwise": {**START["elementwise"], "start_ns": 1500.0}})
    told = fit_sweep(timed("add", SHORT, truth), RATE, START, PEAK, starts=1)
    assert told.told["elementwise"].by["start_ns"] == 4
    assert told.told["elementwise"].by["memory_share"] == 0
    found = told.found.coefficients["elementwise"]
    assert found["start_ns"] == pytest.approx(1500.0, rel=0.05)
    assert found["memory_share"] == START["elementwise"]["memory_share"]


def test_a_family_of_which_nothing_is_told_is_not_given() -> None:
    """In each step a small softmax runs beside additions that take a hundred times as long."""
    small = sweep.lower(sweep.describe("softmax", [8, 32], "float32"))
    model = CostModel(RATE, START)
    steps = [
        each._replace(
            kernels={**each.kernels, **Counter(small)}, took_ns=each.took_ns + model.total_ns(small)
        )
        for each in timed("add", [1 << 26, 1 << 27, 3 << 26, 1 << 28], model)
    ]
    told = fit_sweep(steps, RATE, START, PEAK, starts=1)
    assert told.told["softmax"].timings == 4
    assert not any(told.told["softmax"].by.values())
    assert set(told.found.coefficients) == {"elementwise"}


def test_told_by_names_the_timings() -> None:
    measured = timed("add", [*SHORT, *LONG], CostModel(RATE, START))
    pairs = [("elementwise", name) for name in ("start_ns", "memory_share")]
    found = told_by(measured, RATE, pairs, START)
    assert set(found["elementwise", "start_ns"]) <= {0, 1, 2, 3, 4}
    assert {4, 5, 6, 7} <= set(found["elementwise", "memory_share"])
    assert identified(measured, RATE, pairs, START) == pairs


@pytest.mark.long
def test_timings_that_are_held_out_begin_with_the_base() -> None:
    """A lone op of its part is forecast by the base's curves, not by the code's defaults."""
    measured = [
        *timed("add", LONG, CostModel(RATE, START)),
        *timed("relu_", [1 << 24], CostModel(RATE, START)),
    ]
    groups = [each.name.split()[0] for each in measured]
    said = held_out(measured, groups, 5, RATE, START, PEAK)
    for each, took in zip(measured, said.tolist(), strict=True):
        assert took == pytest.approx(each.took_ns, rel=0.02), each.name
