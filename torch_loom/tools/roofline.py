"""A chip's roofline as text: attainable rate over arithmetic intensity, both logarithmic."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.text import Text

STYLES = ("bold cyan", "bold magenta", "bold yellow", "bold green", "bold blue", "bold red")
MIN_INTENSITY, MAX_INTENSITY = 0.1, 10_000.0
# A cell of braille has two columns of four dots; the value of each dot from the upper left.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def attainable(intensity: float, peak_tflops: float, memory_gbps: float) -> float:
    """Return TFLOP/s at an intensity in flops per byte: what the memory feeds, at most the peak."""
    return min(peak_tflops, intensity * memory_gbps / 1e3)


def plot(peaks: Mapping[str, float], memory_gbps: float, width: int = 60, height: int = 14) -> list[Text]:
    """Return the lines of the picture.

    Args:
        peaks: TFLOP/s by name, one line of the picture each, at most six.
        memory_gbps: rate of the memory, GB/s.
        width, height: of the area of the plot, in characters.
    """
    named = _grouped(peaks)
    top = 10 ** math.ceil(math.log10(max(named.values())))
    bottom = 10 ** math.floor(math.log10(attainable(MIN_INTENSITY, max(named.values()), memory_gbps)))
    cells: dict[tuple[int, int], tuple[int, str]] = {}
    # The lowest roof is drawn last, so that the slope that all share has its colour.
    for style, (_, peak) in zip(STYLES, named.items(), strict=False):
        for column in range(width * 2):
            share = column / (width * 2 - 1)
            intensity = MIN_INTENSITY * (MAX_INTENSITY / MIN_INTENSITY) ** share
            rate = attainable(intensity, peak, memory_gbps)
            level = math.log(rate / bottom) / math.log(top / bottom)
            row = round((1.0 - min(1.0, max(0.0, level))) * (height * 4 - 1))
            place = (row // 4, column // 2)
            dots = cells.get(place, (0, style))[0]
            cells[place] = (dots | _DOTS[row % 4][column % 2], style)
    lines = [Text("TFLOP/s", style="dim")]
    for row in range(height):
        line = Text(f"{_label(row, height, bottom, top):>9} ┤", style="dim")
        for column in range(width):
            dots, style = cells.get((row, column), (0, ""))
            line.append(chr(0x2800 + dots) if dots else " ", style=style)
        lines.append(line)
    lines.append(Text(" " * 10 + "└" + "─" * width, style="dim"))
    lines.append(Text(" " * 11 + _axis(width), style="dim"))
    for style, (name, peak) in zip(STYLES, named.items(), strict=False):
        lines.append(Text(" " * 11).append(f"━ {peak:g}  {name}", style=style))
    return lines


def _grouped(peaks: Mapping[str, float]) -> dict[str, float]:
    """Return the highest peaks, names of the same peak together."""
    names: dict[float, list[str]] = {}
    for name, peak in peaks.items():
        names.setdefault(peak, []).append(name)
    highest = sorted(names, reverse=True)[: len(STYLES)]
    return {", ".join(names[peak]): peak for peak in highest}


def _label(row: int, height: int, bottom: float, top: float) -> str:
    """Return the rate of a row where a power of ten falls into it."""
    decades = round(math.log10(top / bottom))
    for step in range(decades + 1):
        if round((1.0 - step / decades) * (height - 1)) == row:
            return f"{bottom * 10**step:g}"
    return ""


def _axis(width: int) -> str:
    marks = [" "] * width
    decades = round(math.log10(MAX_INTENSITY / MIN_INTENSITY))
    for step in range(decades):
        text = f"{MIN_INTENSITY * 10**step:g}"
        at = round(step / decades * (width - 1))
        marks[at : at + len(text)] = text
    label = "flop/byte"
    marks[width - len(label) :] = label
    return "".join(marks)[:width]
