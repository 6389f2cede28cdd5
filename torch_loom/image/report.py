"""The report: one page that shows a plan, with nothing to load from elsewhere."""

from __future__ import annotations

import colorsys
import html
from collections.abc import Mapping, Sequence
from typing import Any

_STYLE = """
:root { --ink: #1b2733; --faint: #6b7a88; --line: #dfe5ea; --page: #f6f8fa; --card: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf0; --faint: #93a1ae; --line: #2c3640; --page: #14191e; --card: #1c232a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 12px; }
p.lead { color: var(--faint); margin: 0 0 20px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; }
.card b { display: block; font-size: 21px; font-variant-numeric: tabular-nums; }
.card span { color: var(--faint); font-size: 13px; }
.epochs { display: grid; grid-template-columns: repeat(auto-fill, minmax(310px, 1fr)); gap: 14px; }
.epoch header { display: flex; gap: 12px; justify-content: space-between; margin-bottom: 8px;
    font-size: 13px; }
.epoch header b { white-space: nowrap; }
.epoch header em { color: var(--faint); font-style: normal; text-align: right; }
svg { display: block; width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; }
.core { fill: none; stroke: var(--line); } .op rect { stroke: var(--card); stroke-width: 1.5; }
.op:hover rect { stroke: var(--ink); } .op text { fill: #10202c; pointer-events: none; }
h1, td, .labels, .epoch em { overflow-wrap: anywhere; } .labels { margin: 8px 0 0; font-size: 12px; }
.labels b { display: inline; font-size: 12px; } .labels span { display: inline-block; margin-right: 10px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 5px 8px; border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; } .wide { overflow-x: auto; }
"""
_CELL = 30
# The width of a letter, of wide fonts too.
_LETTER = 7.0


def page(plan: Mapping[str, Any]) -> str:
    """Return the page of a plan as HTML."""
    totals, model = plan["totals"], str(plan.get("model", ""))
    rows, columns = plan["grid"]
    chips = f"{plan['num_chips']} x {plan['chip']}" if plan["num_chips"] > 1 else plan["chip"]
    figures = [
        ("samples a second", _number(totals["samples_per_second"])),
        ("interval", duration(totals["interval_seconds"])),
        ("cores busy", f"{100 * totals['utilisation']:.0f}%"),
        ("epochs", str(len(plan["epochs"]))),
        ("ops on the chip", str(sum(len(epoch["ops"]) for epoch in plan["epochs"]))),
        ("ops on the host", str(len(plan["host"]))),
    ]
    title = f"Plan of {model} for {chips}" if model else f"Plan for {chips}"
    cards = "".join(f'<div class="card"><b>{value}</b><span>{name}</span></div>' for name, value in figures)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{_text(title)}</title><style>{_STYLE}</style></head><body><main>
<h1>{_text(title)}</h1>
<p class="lead">{rows} x {columns} cores at {plan["clock_ghz"]:g} GHz.
All times are predictions of the cost model.</p>
<div class="figures">{cards}</div>
<h2>Time</h2><div class="card">{_timeline(plan)}</div>
<h2>Epochs</h2><div class="epochs">{"".join(_epoch(epoch, rows, columns) for epoch in plan["epochs"])}</div>
<h2>Memory</h2><div class="card wide">{_memory(plan)}</div>
<h2>On the host</h2><div class="card wide">{_hosts(plan)}</div>
<h2>Passes</h2><div class="card wide">{_passes(plan)}</div>
</main></body></html>
"""


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Return a time with three digits, in the largest unit of which it has one: "34.6 µs"."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if abs(seconds) * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    picoseconds = round(seconds * 1e12)  # less is what a subtraction leaves
    return f"{picoseconds / 1e3:.3g} ns"


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"


_HUES = {"mm": 0.58, "bmm": 0.62, "addmm": 0.58, "convolution": 0.52, "matmul": 0.58, "_softmax": 0.09}


def _colour(kind: str) -> str:
    base = kind.partition("::")[2].partition(".")[0]
    if "attention" in base:
        hue = 0.08
    elif "norm" in base:
        hue = 0.33
    else:
        hue = _HUES.get(base, 0.12 + (sum(map(ord, base)) % 80) / 100)
    red, green, blue = colorsys.hls_to_rgb(hue % 1.0, 0.72, 0.55)
    return f"#{int(red * 255):02x}{int(green * 255):02x}{int(blue * 255):02x}"


def _epoch(epoch: Mapping[str, Any], rows: int, columns: int) -> str:
    width, height = columns * _CELL + 2, rows * _CELL + 2
    cores = "".join(
        f'<rect class="core" x="{c * _CELL + 1}" y="{r * _CELL + 1}" width="{_CELL}" height="{_CELL}"/>'
        for r in range(rows)
        for c in range(columns)
    )
    labels = [_label(op, number) for number, op in enumerate(epoch["ops"], 1)]
    ops = "".join(_op(op, epoch, label) for op, label in zip(epoch["ops"], labels, strict=True))
    # An op whose name does not fit its cores has a number there.
    numbered = "".join(
        f"<span><b>{label}</b> {_text(op['name'])}</span> "
        for op, label in zip(epoch["ops"], labels, strict=True)
        if label != op["name"]
    )
    names = f'<p class="labels">{numbered}</p>' if numbered else ""
    return (
        f'<div class="card epoch" id="epoch-{epoch["index"]}"><header><b>Epoch {epoch["index"]}</b>'
        f"<em>chip {epoch['chip']} · {_number(epoch['cycles'])} cycles · "
        f"bound by {_text(epoch['bound'])}</em></header>"
        f'<svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="Epoch {epoch["index"]}">{cores}{ops}</svg>{names}</div>'
    )


def _label(op: Mapping[str, Any], number: int) -> str:
    """Return what stands on an op's cores: its name where it fits, or else its number."""
    return op["name"] if len(op["name"]) * _LETTER <= op["grid_size"][1] * _CELL - 8 else str(number)


def _op(op: Mapping[str, Any], epoch: Mapping[str, Any], label: str) -> str:
    (row, column), (height, width) = op["grid_loc"], op["grid_size"]
    share = op["cycles"] / epoch["cycles"] if epoch["cycles"] else 0
    hover = "\n".join(
        [
            f"{op['name']} ({op['type']})",
            f"result {op['shape']} {op['format']} {op['fidelity']}".strip(),
            f"{height} x {width} cores, {op['t']} slices in time",
            f"{_number(op['cycles'])} cycles, {100 * share:.0f}% of the epoch",
            f"{_bytes(op['sram_bytes'])} of each core, parameters {_bytes(op['parameter_bytes'])}",
            *([f"with {', '.join(op['parts'][1:])}"] if len(op["parts"]) > 1 else []),
            *([op["source"]] if op["source"] else []),
        ]
    )
    text = f'<text x="{column * _CELL + 5}" y="{row * _CELL + 15}">{_text(label)}</text>'
    return (
        f'<g class="op"><title>{_text(hover)}</title><rect x="{column * _CELL + 1}" y="{row * _CELL + 1}" '
        f'width="{width * _CELL}" height="{height * _CELL}" rx="3" fill="{_colour(op["type"])}" '
        f'fill-opacity="{0.45 + 0.55 * share:.2f}"/>{text}</g>'
    )


def _timeline(plan: Mapping[str, Any]) -> str:
    """A bar for each epoch on the row of its chip."""
    total = sum(epoch["cycles"] for epoch in plan["epochs"]) or 1
    width, bar, at = 1040, 26, 0.0
    shown = []
    for epoch in plan["epochs"]:
        length = width * epoch["cycles"] / total
        hover = f"Epoch {epoch['index']}: {_number(epoch['cycles'])} cycles, bound by {epoch['bound']}"
        colour = "#e3a35b" if epoch["bound"] == "DRAM" else "#7fb2dc"
        shown.append(
            f'<a href="#epoch-{epoch["index"]}"><rect x="{at:.1f}" y="{epoch["chip"] * (bar + 4)}" '
            f'width="{max(length - 1, 0.5):.1f}" height="{bar}" rx="2" fill="{colour}">'
            f"<title>{_text(hover)}</title></rect></a>"
        )
        at += length
    height = plan["num_chips"] * (bar + 4)
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="Time line">{"".join(shown)}</svg>'
        '<p class="lead" style="margin:8px 0 0">Blue: bound by an op. Orange: bound by DRAM. '
        f"{duration(plan['totals']['latency_seconds'])} from left to right.</p>"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[int] = ()) -> str:
    def cell(kind: str, i: int, value: object) -> str:
        return f"<{kind}{' class=n' if i in numbers else ''}>{_text(value)}</{kind}>"

    top = "".join(cell("th", i, each) for i, each in enumerate(head))
    body = "".join(
        "<tr>" + "".join(cell("td", i, each) for i, each in enumerate(row)) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _memory(plan: Mapping[str, Any]) -> str:
    used: dict[tuple[int, int], int] = {}
    for queue in plan["queues"]:
        if queue["place"] == "dram":
            key = (queue["chip"], queue["channel"])
            used[key] = used.get(key, 0) + queue["bytes"] * queue["entries"]
    rows = [
        (chip, channel, _bytes(size), f"{100 * size / plan['channel_bytes']:.2g}%")
        for (chip, channel), size in sorted(used.items())
    ]
    return _table(("chip", "channel", "used", "of its capacity"), rows, (2, 3))


def _hosts(plan: Mapping[str, Any]) -> str:
    if not plan["host"]:
        return "Nothing: the chip does every op itself."
    rows = [(name, each["op"], each["reason"], each["source"]) for name, each in plan["host"].items()]
    return _table(("node", "op", "why", "from"), rows)


def _passes(plan: Mapping[str, Any]) -> str:
    rows = [
        (each["name"], f"{each['milliseconds']:.1f}", each["ops_before"], each["ops_after"])
        for each in plan["passes"]
    ]
    return _table(("pass", "ms", "ops before", "ops after"), rows, (1, 2, 3))


def trace_events(plan: Mapping[str, Any], *, with_ops: bool) -> list[dict[str, Any]]:
    """Return the predicted run as events of a Chrome trace, in microseconds; with_ops: each op's, too."""
    scale = 1e-3 / plan["clock_ghz"]
    events: list[dict[str, Any]] = []
    at = 0.0
    for epoch in plan["epochs"]:
        own = {"ph": "X", "pid": epoch["chip"], "ts": at * scale}
        events.append({**own, "name": f"epoch {epoch['index']}", "tid": 0, "dur": epoch["cycles"] * scale})
        if with_ops:
            for number, op in enumerate(epoch["ops"]):
                events.append({**own, "name": op["name"], "tid": number + 1, "dur": op["cycles"] * scale})
        at += epoch["cycles"]
    return events
