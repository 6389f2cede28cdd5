"""The picture of forecasts against measurements."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from benchmarks.clock_picture import MOST, SIZE, picture
from benchmarks.clock_truth import Found


def row(family: str, took_ns: float, error: float, *, is_fitted: bool = False) -> Found:
    return Found(family, "card", "row", is_fitted, error, took_ns)


def points(text: str) -> list[tuple[int, int]]:
    return [(int(x), int(y)) for x, y in re.findall(r"M(\d+) (\d+)h0", text)]


def test_a_panel_for_each_family() -> None:
    text = picture([row("convolution", 1e6, 0.1), row("half GEMM", 1e3, 0.0, is_fitted=True)])
    ElementTree.fromstring(text)
    assert "held back" in text
    assert text.index(">half GEMM<") < text.index(">convolution<")
    assert ">elementwise<" not in text


def test_points_stand_where_their_times_are() -> None:
    # From 1 us to 100 us; forecast ten times too long, then right.
    text = picture([row("convolution", 1e4, 9.0), row("convolution", 1e3, 0.0)])
    assert points(text) == [(SIZE // 2, 0), (0, SIZE)]


def test_many_points_are_thinned() -> None:
    text = picture([row("convolution", 1e4 * (1 + number), 0.0) for number in range(5 * MOST)])
    assert len(points(text)) == MOST
