"""Intervals of forecasts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from torch_loom.chips import uncertainty


@pytest.fixture(autouse=True)
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ranges that differ by family."""
    ends = {
        "half GEMM": (0.9, 1.2),
        "float GEMM": (0.8, 1.1),
        "elementwise": (0.95, 1.05),
        "norm and softmax": (0.9, 1.1),
        "convolution": (0.6, 1.5),
        "convolution gradient": (0.7, 1.6),
        "convnet steps": (0.7, 1.3),
        "transformer steps": (0.9, 1.15),
    }
    file = tmp_path / "uncertainty.json"
    file.write_text(json.dumps({"families": {name: {"low": a, "high": b} for name, (a, b) in ends.items()}}))
    monkeypatch.setattr(uncertainty, "FILE", file)
    uncertainty.ranges.cache_clear()
    yield
    uncertainty.ranges.cache_clear()


def test_the_widest_of_a_family_counts() -> None:
    assert uncertainty.range_of("matmul") == (0.8, 1.2)
    assert uncertainty.range_of("convolution") == (0.6, 1.6)
    # Nothing measured stands for it: anything that was measured may.
    assert uncertainty.range_of("fourier") == (0.6, 1.6)


@pytest.mark.parametrize(
    ("shares", "ends"),
    [
        ({"convolution": 1, "elementwise": 3}, (0.7, 1.3)),
        ({"convolution": 1, "matmul": 30}, (0.9, 1.15)),
        ({"matmul": 1, "attention": 1, "copy": 5}, (0.9, 1.15)),
        ({"elementwise": 1}, (0.95, 1.05)),
        ({"elementwise": 1, "softmax": 1}, (0.925, 1.075)),
        ({}, (1.0, 1.0)),
    ],
)
def test_a_step_is_as_its_kind(shares: dict[str, float], ends: tuple[float, float]) -> None:
    low, high, source = uncertainty.of_step(2.0, shares)
    assert (low, high) == pytest.approx((2 * ends[0], 2 * ends[1]))
    assert "measured" in source


def test_what_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each range holds the forecast, and held what it says of rows that did not make it."""
    monkeypatch.setattr(uncertainty, "FILE", Path(uncertainty.__file__).with_name("uncertainty.json"))
    uncertainty.ranges.cache_clear()
    families = json.loads(uncertainty.FILE.read_text())["families"]
    assert {uncertainty.CONVNETS, uncertainty.TRANSFORMERS, "half GEMM", "elementwise"} <= families.keys()
    for name, each in families.items():
        assert 0.3 < each["low"] < 1.0 < each["high"] < 3.0, name
        assert 0.7 <= each["held"] <= 0.9 or each["tested"] < 50, name
    for family in ("matmul", "convolution", "fourier"):
        assert uncertainty.range_of(family).low < 1.0 < uncertainty.range_of(family).high
