"""How the cost of a unit grows: with devices, live tensors, streams, known calls and captured ops.

Each row is measured in a process of its own: CPU time of the process for a unit of work, the smallest of some
rounds. Prints a line a row, then for each subject the largest cost over the smallest, and last the worst of
these. `--write-docs` draws them, too.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time_ns

import torch

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._common import DOCS_FILE, parser, write_docs, write_json
from tools.blocks import markdown_table

COMMAND = "python -m benchmarks.growth"
TARGET = 1.5
UNITS, QUICK_UNITS = 20_000, 500
ROUNDS, QUICK_ROUNDS = 7, 1
ROOT = Path(__file__).parents[1]
PICTURE = DOCS_FILE.parent / "pictures" / "growth.svg"

Work = Callable[[int], None]  # does so many units


def _devices(count: int) -> Work:
    """Additions on each device in turn."""
    torch.loom.configure(devices=count)
    tensors = [torch.ones(4, device=f"loom:{device}") for device in range(count)]

    def work(units: int) -> None:
        for unit in range(units):
            x = tensors[unit % count]
            torch.add(x, x)

    return work


def _live_tensors(count: int) -> Work:
    """Allocations, with so many tensors alive."""
    alive = [torch.empty(4, device="loom") for _ in range(count)]
    del alive[7::7]  # holes, as a program leaves them

    def work(units: int) -> None:
        for _ in range(units):
            alive[0] = torch.empty(4, device="loom")

    return work


def _streams(count: int) -> Work:
    """Additions on each stream in turn, and the wait for all."""
    streams = [torch.loom.Stream() for _ in range(count)]
    x = torch.ones(4, device="loom")
    torch.loom.synchronize()

    def work(units: int) -> None:
        for stream in streams:
            with torch.loom.stream(stream):
                for _ in range(units // count):
                    torch.add(x, x)
        torch.loom.synchronize()

    return work


def _known_calls(count: int) -> Work:
    """Negations of four elements with strides in turn, all of which were seen before."""
    memory = torch.ones(4096, device="loom")
    views = [memory.as_strided((2, 2), (1 + number % 1000, 1 + number // 1000)) for number in range(count)]
    for view in views:
        torch.neg(view)
    turns = itertools.cycle(views)

    def work(units: int) -> None:
        for view in itertools.islice(turns, units):
            torch.neg(view)

    return work


def _captured_ops(count: int) -> Work:
    """Ops of a graph that is replayed."""
    x = torch.ones(4, device="loom")
    graph = torch.loom.CUDAGraph()
    with torch.loom.graph(graph):
        for _ in range(count):
            x.add_(1)

    def work(units: int) -> None:
        for _ in range(units // count):
            graph.replay()
        torch.loom.synchronize()

    return work


@dataclass(frozen=True)
class Subject:
    """What grows: how it is set up, its unit, and the numbers that are measured."""

    prepare: Callable[[int], Work]
    unit: str
    counts: tuple[int, ...]


SUBJECTS = {
    "devices": Subject(_devices, "op", (1, 2, 4, 8, 16)),
    "live tensors": Subject(_live_tensors, "allocation", (1, 100, 10_000, 100_000, 1_000_000)),
    "streams": Subject(_streams, "op", (1, 4, 16, 64)),
    "known calls": Subject(_known_calls, "op", (100, 1_000, 10_000, 100_000, 1_000_000)),
    "captured ops": Subject(_captured_ops, "op", (10, 100, 1_000, 10_000, 100_000)),
}


def measure(name: str, count: int, quick: bool) -> float:
    """Returns nanoseconds of CPU time for a unit; to be called once in a process."""
    subject = SUBJECTS[name]
    torch.set_num_threads(1)
    work = subject.prepare(count)
    # A whole number of turns over what there is.
    units = max(QUICK_UNITS if quick else UNITS, count if name in ("streams", "captured ops") else 0)
    if name in ("streams", "captured ops"):
        units -= units % count
    gc.disable()
    work(units)
    found = []
    for _ in range(QUICK_ROUNDS if quick else ROUNDS):
        began = process_time_ns()
        work(units)
        found.append((process_time_ns() - began) / units)
    return min(found)


def _measured_apart(name: str, count: int, quick: bool) -> float:
    """Returns what measure() returns in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.growth", "--one", name, str(count)]
    done = subprocess.run(
        [*command, *(["--quick"] if quick else [])], capture_output=True, text=True, check=False, cwd=ROOT
    )
    if done.returncode != 0:
        raise RuntimeError(f"{name}, {count}: the measurement failed:\n{done.stderr}")
    return float(done.stdout)


def picture(costs: Mapping[str, Mapping[int, float]]) -> str:
    """Returns an SVG: for each subject, the cost of a unit over its smallest, against the count."""
    width, height, left, bottom = 720, 360, 60, 40
    colors = ("#2563eb", "#dc2626", "#16a34a", "#9333ea", "#d97706")
    most = max(max(row.values()) / min(row.values()) for row in costs.values())
    top = max(2.0, math.ceil(most * 2) / 2)
    across = (width - left - 190) / 6  # decades

    def place(count: int, ratio: float) -> str:
        x = left + math.log10(count) * across
        return f"{x:.1f},{height - bottom - (ratio - 1) / (top - 1) * (height - bottom - 30):.1f}"

    def text(x: float, y: float, words: str, color: str = "#555") -> str:
        return f"<text x='{x:.0f}' y='{y:.0f}' fill='{color}'>{words}</text>"

    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
        "font-family='system-ui,sans-serif' font-size='13'><rect width='100%' height='100%' fill='white'/>",
        text(left, 18, "cost of a unit, over the smallest of its line"),
    ]
    for decade in range(7):
        parts.append(text(left + decade * across - 10, height - 16, f"10^{decade}"))
    for ratio in (1.0, TARGET, top):
        x, y = place(1, ratio).split(",")
        parts.append(f"<path d='M{x} {y}H{width - 190}' stroke='#ddd'/>")
        parts.append(text(left - 34, float(y) + 4, f"{ratio:g}"))
    for row, color in zip(costs.values(), colors, strict=True):
        smallest = min(row.values())
        points = [place(count, cost / smallest) for count, cost in row.items()]
        parts.append(f"<polyline points='{' '.join(points)}' fill='none' stroke='{color}' stroke-width='2'/>")
        parts += [
            f"<circle cx='{p.split(',')[0]}' cy='{p.split(',')[1]}' r='3' fill='{color}'/>" for p in points
        ]
    for place_in_legend, (name, color) in enumerate(zip(costs, colors, strict=True)):
        parts.append(text(width - 170, 50 + 22 * place_in_legend, name, color))
    return "".join(parts) + "</svg>\n"


def docs_body(costs: Mapping[str, Mapping[int, float]]) -> str:
    """Returns the section for docs/performance.md."""
    table = [
        [name, SUBJECTS[name].unit, f"{count:,}", f"{cost:,.0f}", f"{cost / min(row.values()):.2f}"]
        for name, row in costs.items()
        for count, cost in row.items()
    ]
    header = ["what grows", "unit", "count", "ns a unit", "over the smallest"]
    return (
        f"CPU time a unit; at most {TARGET} times the smallest of its line.\n\n"
        f"![growth](pictures/{PICTURE.name})\n\n{markdown_table(header, table)}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    options_of = parser("Cost of a unit, against how much there is.")
    options_of.add_argument("--one", nargs=2, metavar=("SUBJECT", "COUNT"), help=argparse.SUPPRESS)
    options = options_of.parse_args(arguments)
    if options.one:
        print(measure(options.one[0], int(options.one[1]), options.quick))
        return 0
    costs: dict[str, dict[int, float]] = {}
    for name, subject in SUBJECTS.items():
        for count in subject.counts[:2] if options.quick else subject.counts:
            cost = _measured_apart(name, count, options.quick)
            costs.setdefault(name, {})[count] = cost
            print(
                f"{name:<13} {count:>9,}  {cost:10.0f} ns a{'n' * (subject.unit[0] in 'ao')} {subject.unit}",
                flush=True,
            )
    growths = {name: max(row.values()) / min(row.values()) for name, row in costs.items()}
    if options.json:
        write_json(options.json, {"command": COMMAND, "target": TARGET, "ns": costs, "growths": growths})
    if options.write_docs:
        PICTURE.write_text(picture(costs), encoding="utf-8")
        write_docs("growth", "Growth", docs_body(costs), COMMAND)
    for name, growth in growths.items():
        print(f"{name}: {growth:.2f}{f', target {TARGET}' if growth > TARGET else ''}")
    print(f"worst {max(growths.values()):.2f}", flush=True)
    return 1 if options.check and max(growths.values()) > TARGET else 0


if __name__ == "__main__":
    raise SystemExit(main())
