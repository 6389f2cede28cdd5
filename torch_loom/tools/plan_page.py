"""The page of a plan: one HTML file with its pictures in it, for a browser without a network."""

from __future__ import annotations

import math
import shlex
import statistics
from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Any

from torch_loom.image.report import duration
from torch_loom.tools.plan_text import (
    collectives_text,
    interval_text,
    reads_text,
    size_text,
    times_text,
)

WIDTH, HEIGHT, LEFT, BOTTOM = 960, 300, 70, 30
LANE = 26
COLOURS = {
    "parameters": "#3b6fb6",
    "gradients": "#e08a3c",
    "optimizer state": "#7a5ba8",
    "activations": "#4fa077",
    "workspace": "#c2566b",
    "fragmentation": "#9aa3ad",
}
FAMILY_COLOURS = ("#3b6fb6", "#4fa077", "#e08a3c", "#7a5ba8", "#c2566b", "#3aa6a6", "#b59b2f", "#8a8f98")
STYLE = """
:root{color-scheme:light dark;--ink:#1d2530;--dim:#667180;--line:#d9dee5;--paper:#fff;--card:#f6f8fa}
@media (prefers-color-scheme:dark){
:root{--ink:#e6eaf0;--dim:#98a3b3;--line:#39424e;--paper:#14181d;--card:#1c2229}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
margin:0 auto;max-width:1040px;padding:32px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:17px;margin:32px 0 8px}p{color:var(--dim);margin:0 0 16px}
.cards{display:flex;gap:12px;flex-wrap:wrap;margin-bottom:14px}
.card,svg,pre{background:var(--card);border:1px solid var(--line);border-radius:10px}
.card{padding:12px 16px;min-width:130px}.card b{display:block;font-size:22px}
.card span{color:var(--dim);font-size:13px}svg{width:100%;height:auto}
svg text{fill:var(--dim);font:12px system-ui,sans-serif}table{border-collapse:collapse;width:100%}
td,th{padding:5px 10px;border-bottom:1px solid var(--line);text-align:left}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.key{display:inline-block;width:11px;height:11px;border-radius:3px;margin:0 6px 0 14px}.bad{color:#c0392b}
h1,h2,p,td,.card b{overflow-wrap:anywhere}td.n{white-space:nowrap}
pre{padding:12px;overflow:auto;font-size:13px;white-space:pre-wrap;overflow-wrap:anywhere}
"""


def page(found: dict[str, Any]) -> str:
    """Return the page of what :func:`torch_loom.tools.plan.summary` returned."""
    first = found["devices"][0]
    title = shlex.join([found["script"], *found["arguments"]])
    model = f"{escape(found['model'])}, " if found["model"] else ""
    steps, forwards = found["step_seconds"], found["forward_seconds"]
    if steps:
        time = ("time of a step", duration(steps[-1]))
    elif forwards:
        time = (f"a forward, median of {len(forwards)}", duration(statistics.median(forwards)))
    elif found["is_cut_short"]:
        time = ("device time until it ended, before a step", duration(found["seconds"]))
    else:
        time = ("device time in all", duration(found["seconds"]))
    in_steps = first["step_memory_by_category"]
    after_setup = [] if in_steps is None else [("peak after the setup", size_text(sum(in_steps.values())))]
    cards = [
        time,
        ("peak memory", size_text(first["peak_memory_bytes"])),
        *after_setup,
        ("held by the allocator", size_text(first["peak_reserved_bytes"])),
        ("capacity", size_text(first["capacity_bytes"])),
        ("device in use, whole program", f"{first['utilisation']:.0%}"),
    ]
    if len(found["step_busy_seconds"]) == len(steps) > 0:
        cards.insert(1, ("of the last step devices run", duration(found["step_busy_seconds"][-1])))
    if (factor := found["batch_factor"]) and factor > 1 and not found["out_of_memory"]:
        cards.append(("as large a batch fits", f"about {times_text(factor)} times"))
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>plan of {escape(title)}</title>",
        f"<meta name=viewport content='width=device-width'><style>{STYLE}</style>",
        f"<h1>{escape(title)}</h1>",
        f"<p>{model}planned on {len(found['devices'])} &times; {escape(found['chip'])}, without the chip</p>",
        "<div class=cards>",
        *(
            f"<div class=card><b>{escape(value)}</b><span>{escape(name)}</span></div>"
            for name, value in cards
        ),
        "</div>",
    ]
    if text := interval_text(found):
        parts.append(f"<p>{escape(text)}</p>")
    if found["collectives"]:
        parts.append(f"<p>{escape(collectives_text(found))}</p>")
    if text := reads_text(found):
        parts.append(f"<p class=bad>{escape(text)}</p>")
    if found["out_of_memory"]:
        parts.append(f"<h2 class=bad>Out of memory</h2><pre>{escape(found['out_of_memory'])}</pre>")
    for number, device in enumerate(found["devices"][:8], found["first_device"]):
        parts.append(f"<h2>Memory of device {number}</h2>")
        if device["peak_memory_bytes"]:
            parts += [_memory(device), _legend(COLOURS)]
        else:
            parts.append("<p>Nothing was taken.</p>")
    parts += ["<h2>Streams</h2>", *_timeline(found)]
    parts += ["<h2>Ops that take longest</h2>", _ops(found)]
    if first["peak_stack"]:
        lines = "\n".join(f"{file}:{line}  {function}" for file, line, function in first["peak_stack"])
        parts.append(f"<h2>Where most memory was in use</h2><pre>{escape(lines)}</pre>")
    return "".join(parts) + "</html>\n"


def _legend(colours: dict[str, str]) -> str:
    keys = (f"<span class=key style='background:{c}'></span>{escape(name)}" for name, c in colours.items())
    return f"<p style='margin-top:6px'>{''.join(keys)}</p>"


def _memory(device: dict[str, Any]) -> str:
    """Return the areas of memory over time, by category, in the order of issue."""
    points = device["memory_over_time"]
    names = [name for name in COLOURS if any(point.get(name) for point in points)]
    totals = [sum(point[name] for name in names) for point in points]
    peak, capacity = max(totals, default=1), device["capacity_bytes"]
    top = max(peak * 1.15, 1)
    if capacity < 3 * peak:
        top = max(top, capacity * 1.08)

    def x(place: int) -> float:
        return LEFT + (WIDTH - LEFT - 12) * place / max(1, len(points) - 1)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 14) * value / top

    parts = [f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role=img aria-label='memory over time'>"]
    for value in _ticks(top):
        parts.append(
            f"<line x1={LEFT} x2={WIDTH - 12} y1={y(value):.1f} y2={y(value):.1f} stroke='var(--line)'/>"
            f"<text x={LEFT - 8} y={y(value) + 4:.1f} text-anchor=end>{size_text(value)}</text>"
        )
    below = [0] * len(points)
    for name in names:
        above = [low + point[name] for low, point in zip(below, points, strict=True)]
        upper = " ".join(f"{x(place):.1f},{y(value):.1f}" for place, value in enumerate(above))
        lower = " ".join(f"{x(place):.1f},{y(below[place]):.1f}" for place in reversed(range(len(points))))
        parts.append(
            f"<polygon points='{upper} {lower}' fill='{COLOURS[name]}' fill-opacity='.85'>"
            f"<title>{escape(name)}</title></polygon>"
        )
        below = above
    if capacity <= top:
        parts.append(
            f"<line x1={LEFT} x2={WIDTH - 12} y1={y(capacity):.1f} y2={y(capacity):.1f} stroke='#c0392b'"
            f" stroke-width=2 stroke-dasharray='7 5'/><text x={WIDTH - 16} y={y(capacity) - 6:.1f}"
            f" text-anchor=end>capacity {size_text(capacity)}</text>"
        )
    parts.append(f"<text x={LEFT} y={HEIGHT - 9}>begin</text>")
    parts.append(f"<text x={WIDTH - 14} y={HEIGHT - 9} text-anchor=end>end, in order of issue</text></svg>")
    return "".join(parts)


def _ticks(top: float) -> list[float]:
    """Return some five values up to ``top``, powers of two apart or their halves."""
    step = 2.0 ** math.floor(math.log2(max(top, 1.0) / 4))
    return [step * place for place in range(int(top / step) + 1)]


def _timeline(found: dict[str, Any]) -> Sequence[str]:
    """Return a lane for each stream, from the begin of the last step that is kept whole."""
    spans = found["spans"]
    if not spans:
        return ["<p>Nothing ran.</p>"]
    ends = [0.0]
    for took in found["step_seconds"]:
        ends.append(ends[-1] + took)
    last = max(span[5] for span in spans)
    whole = [end for end in ends if end <= last + 1e-12]
    begin, end = (whole[-2], whole[-1]) if len(whole) > 1 else (min(span[4] for span in spans), last)
    shown = [span for span in spans if span[5] > begin and span[4] < end]
    lanes = sorted({(span[2], span[3]) for span in shown})
    seconds: dict[str, float] = defaultdict(float)
    for _, family, _, _, began, ended in shown:
        seconds[family] += ended - began
    longest = sorted(seconds, key=lambda name: -seconds[name])
    # The last colour is for the families that have none of their own.
    legend = dict(zip(longest, FAMILY_COLOURS[:-1], strict=False))
    others = dict.fromkeys(longest[len(legend) :], FAMILY_COLOURS[-1])
    colours = legend | others
    height = LANE * len(lanes) + 34
    scale = (WIDTH - LEFT - 12) / max(end - begin, 1e-12)
    parts = [f"<svg viewBox='0 0 {WIDTH} {height}' role=img aria-label='streams over time'>"]
    for number, (device, stream) in enumerate(lanes):
        top = 8 + number * LANE
        parts.append(f"<text x={LEFT - 8} y={top + 15} text-anchor=end>{device} · {stream}</text>")
        for name, family, where, which, began, ended in shown:
            if (where, which) == (device, stream):
                left = LEFT + (max(began, begin) - begin) * scale
                width = max(0.4, (min(ended, end) - max(began, begin)) * scale)
                parts.append(
                    f"<rect x={left:.2f} y={top} width={width:.2f} height={LANE - 6}"
                    f" fill='{colours[family]}'>"
                    f"<title>{escape(name)} {duration(ended - began)}</title></rect>"
                )
    parts.append(f"<text x={LEFT} y={height - 8}>{duration(begin)}</text>")
    parts.append(f"<text x={WIDTH - 14} y={height - 8} text-anchor=end>{duration(end)}</text></svg>")
    return ["".join(parts), _legend(legend | ({"others": FAMILY_COLOURS[-1]} if others else {}))]


def _ops(found: dict[str, Any]) -> str:
    whole = sum(found["seconds_by_family"].values()) or 1.0
    setup = found["setup"]
    rows = (
        f"<tr><td>setup<td>before the steps<td class=n>{setup['calls']}"
        f"<td class=n>{duration(setup['device_seconds'])}<td class=n>{setup['device_seconds'] / whole:.1%}"
        if setup["calls"]
        else ""
    )
    rows += "".join(
        f"<tr><td>{escape(name)}<td>{escape(family)}<td class=n>{calls}<td class=n>{duration(seconds)}"
        f"<td class=n>{seconds / whole:.1%}"
        for name, family, calls, seconds in found["ops"]
    )
    return f"<table><tr><th>op<th>family<th class=n>calls<th class=n>time<th class=n>share</tr>{rows}</table>"
