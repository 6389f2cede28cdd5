"""The picture of forecasts against measurements, by family: docs/pictures/clock_error.svg."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.clock_truth import FAMILIES, Found

COLUMNS, SIZE, GAP, TOP = 3, 250, 46, 62
# Points of a half in a panel: more cannot be seen.
MOST = 400
MOST_TICKS = 6
HELD_BACK = "Other cards and models of these sources are held back: not ours to see."
HALVES = {False: ("not fitted", "#c2566b"), True: ("fitted", "#3b6fb6")}
UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def picture(found: Sequence[Found]) -> str:
    """Return an SVG with a panel for each family: measured time to the right, forecast upwards, logarithmic.

    On the line both agree. Points of each half are taken at even steps where there are too many.
    """
    panels = [family for family in FAMILIES if any(each.family == family for each in found)]
    rows = math.ceil(len(panels) / COLUMNS)
    width, height = COLUMNS * (SIZE + GAP) + GAP, TOP + rows * (SIZE + GAP + 14)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12" fill="#667180" stroke-linecap="round">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
        f'<text x="{GAP}" y="22" font-size="15" fill="#1d2530">Forecast against measured time of rows</text>'
        + "".join(
            f'<text x="{GAP + 130 * place}" y="42" fill="{colour}">● {text}</text>'
            for place, (text, colour) in enumerate(HALVES.values())
        )
        + f'<text x="{GAP + 260}" y="42">{HELD_BACK}</text>'
    ]
    for place, family in enumerate(panels):
        x, y = GAP + place % COLUMNS * (SIZE + GAP), TOP + 16 + place // COLUMNS * (SIZE + GAP + 14)
        parts.append(_panel([each for each in found if each.family == family], family, x, y))
    return "".join(parts) + "</svg>\n"


def _panel(found: Sequence[Found], family: str, x: int, y: int) -> str:
    both = [time for each in found for time in (each.took_ns, each.took_ns * (1.0 + each.error))]
    low, high = math.floor(math.log10(min(both))), math.ceil(math.log10(max(both)))

    def at(time: float) -> float:
        return (math.log10(time) - low) / max(1, high - low) * SIZE

    parts = [
        f'<g transform="translate({x} {y})"><text y="-6" fill="#1d2530">{family}</text>'
        f'<rect width="{SIZE}" height="{SIZE}" fill="#f6f8fa" stroke="#d9dee5"/>'
        f'<path d="M0 {SIZE}L{SIZE} 0" stroke="#9aa3ad"/>'
    ]
    for power in range(low, high + 1, 1 if high - low <= MOST_TICKS else 2):
        place = at(10.0**power)
        parts.append(
            f'<text x="{place:.0f}" y="{SIZE + 14}" text-anchor="middle">{_time(10.0**power)}</text>'
        )
    for is_fitted, (_, colour) in reversed(HALVES.items()):
        half = [each for each in found if each.is_fitted is is_fitted]
        shown = half[:: math.ceil(len(half) / MOST)] if half else []
        points = "".join(
            f"M{at(each.took_ns):.0f} {SIZE - at(each.took_ns * (1.0 + each.error)):.0f}h0" for each in shown
        )
        parts.append(f'<path d="{points}" stroke="{colour}" stroke-width="3" stroke-opacity="0.5"/>')
    return "".join(parts) + "</g>"


def _time(nanoseconds: float) -> str:
    size, unit = next(each for each in UNITS if nanoseconds >= each[0] or each[0] == 1.0)
    return f"{nanoseconds / size:g} {unit}"
