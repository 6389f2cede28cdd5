"""Plots as SVG text: two axes, series of points, no library."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

WIDTH, HEIGHT = 960, 360
LEFT, RIGHT, TOP, BOTTOM = 76, 28, 16, 44


@dataclass(frozen=True)
class Mark:
    """A point of a plot with what the pointer shows over it."""

    x: float
    y: float
    title: str
    kind: str = "dot"


@dataclass(frozen=True)
class Series:
    """Points of one colour, with a line through them unless ``has_line`` is False."""

    color: int
    marks: Sequence[Mark]
    has_line: bool = True


@dataclass
class Axis:
    """One axis: its name, its ends, and whether steps are factors."""

    name: str
    low: float
    high: float
    is_log: bool = False
    ticks: list[tuple[float, str]] = field(default_factory=list)

    def place(self, value: float) -> float:
        """Return where a value is, from 0 to 1; values outside are put at the ends."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = (math.log10(max(each, 1e-300)) for each in (value, low, high))
        if high <= low:
            return 0.5
        return min(1.0, max(0.0, (value - low) / (high - low)))


def log_axis(name: str, values: Sequence[float]) -> Axis:
    """Return an axis of whole powers of ten around the positive values."""
    positive = [value for value in values if value > 0 and math.isfinite(value)]
    low = math.floor(math.log10(min(positive))) if positive else -3
    high = math.ceil(math.log10(max(positive))) if positive else 0
    high = max(high, low + 1)
    step = max(1, math.ceil((high - low) / 8))
    ticks = [
        (10.0**power, f"10<tspan dy='-5' font-size='9'>{power}</tspan>")
        for power in range(low, high + 1, step)
    ]
    return Axis(name, 10.0**low, 10.0**high, True, ticks)


def linear_axis(name: str, values: Sequence[float], *, whole: bool = False, bytes_: bool = False) -> Axis:
    """Return an axis around the values with round steps."""
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    step = max(step, 1.0) if whole else step
    first, last = math.floor(low / step), math.ceil(high / step)
    values = [number * step for number in range(first, last + 1)]
    ticks = [(value, _bytes(value) if bytes_ else f"{value:g}") for value in values]
    return Axis(name, values[0], values[-1], False, ticks)


def _bytes(value: float) -> str:
    for unit in ("B", "KB", "MB"):
        if abs(value) < 1000:
            return f"{value:g} {unit}"
        value /= 1000
    return f"{value:g} GB"


def plot(
    label: str, x: Axis, y: Axis, series: Sequence[Series], *, level: tuple[float, str] | None = None
) -> str:
    """Return an SVG element.

    Args:
        label: what it shows, for readers that do not see it.
        level: a value of `y` to draw a line at, and its name.
    """
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(mark_x: float, mark_y: float) -> tuple[float, float]:
        return LEFT + x.place(mark_x) * inner_width, TOP + (1 - y.place(mark_y)) * inner_height

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(label)}">']
    for value, text in y.ticks:
        height = at(x.low, value)[1]
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>'
        )
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{height + 4:.1f}" text-anchor="end">{text}</text>'
        )
    for value, text in x.ticks:
        across = at(value, y.low)[0]
        parts.append(
            f'<text class="tick" x="{across:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{text}</text>"
        )
    base = TOP + inner_height
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    middle = LEFT + inner_width / 2
    parts.append(
        f'<text class="name" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{html.escape(x.name)}</text>'
    )
    across = TOP + inner_height / 2
    parts.append(
        f'<text class="name" transform="rotate(-90 16 {across})" x="16" y="{across}" text-anchor="middle">'
        f"{html.escape(y.name)}</text>"
    )
    if level is not None:
        height = at(x.low, level[0])[1]
        parts.append(
            f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>'
        )
        parts.append(
            f'<text class="tick" x="{WIDTH - RIGHT}" y="{height - 5:.1f}" text-anchor="end">'
            f"{html.escape(level[1])}</text>"
        )
    for each in series:
        places = [at(mark.x, mark.y) for mark in each.marks]
        if each.has_line and len(places) > 1:
            line = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
            parts.append(f'<polyline class="line c{each.color}" points="{line}"/>')
        for mark, (px, py) in zip(each.marks, places, strict=True):
            radius = 5 if mark.kind == "chosen" else 3
            parts.append(
                f'<circle class="{mark.kind} c{each.color}" cx="{px:.1f}" cy="{py:.1f}" r="{radius}">'
                f"<title>{html.escape(mark.title)}</title></circle>"
            )
    return "".join([*parts, "</svg>"])
