"""Intervals of the clock's errors: made of one part of the rows, tested on another."""

from __future__ import annotations

import numpy as np

from benchmarks import clock_truth
from benchmarks.clock_truth import Found


def rows(source: str, spread: float, count: int, *, is_fitted: bool = False) -> list[Found]:
    """Rows whose measured time over forecast is evenly spread from 1 - spread to 1 + spread."""
    ratios = np.random.default_rng(0).permutation(np.linspace(1 - spread, 1 + spread, count))
    return [
        Found("elementwise", source, f"row {number}", is_fitted, 1 / ratio - 1, 1e6)
        for number, ratio in enumerate(ratios)
    ]


def test_eight_of_ten_lie_within() -> None:
    made = clock_truth.intervals(rows("card", 0.5, 2000))["elementwise"]
    assert abs(made["low"] - 0.6) < 0.03
    assert abs(made["high"] - 1.4) < 0.03
    assert abs(made["held"] - 0.8) < 0.04
    assert made["rows"] + made["tested"] == 2000


def test_a_card_of_few_rows_counts() -> None:
    """The few widen the interval of the many: those alone have 0.91 to 1.11."""
    made = clock_truth.intervals([*rows("many", 0.1, 4000), *rows("few", 0.5, 200)])["elementwise"]
    assert made["low"] < 0.85
    assert made["high"] > 1.15


def test_what_was_fitted_makes_no_interval() -> None:
    fitted = rows("card", 0.9, 4000, is_fitted=True)
    assert clock_truth.intervals(fitted) == {}
    assert clock_truth.intervals([*fitted, *rows("card", 0.1, 400)])["elementwise"]["high"] < 1.11


def test_steps_of_all_cards_are_one_family() -> None:
    steps = [each._replace(family="convnet steps, others") for each in rows("card", 0.2, 300)]
    made = clock_truth.intervals(steps)
    assert list(made) == ["convnet steps"]
    assert "| convnet steps |" in clock_truth.intervals_table(made)
