"""Benchmarks that print a few figures, each with a target: their lines, JSON, and section of the docs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import torch

from benchmarks._common import parser, write_docs, write_json
from tools.blocks import markdown_table


@dataclass(frozen=True)
class Target:
    """How large a figure may be, in its unit (`None`: as large as it is), and how it is measured."""

    limit: float | None
    unit: str
    method: str


@dataclass(frozen=True)
class Figure:
    """One result, in its target's unit. `p90` is the 90th percentile."""

    name: str
    median: float
    p90: float

    @staticmethod
    def of(name: str, values: Sequence[float]) -> Figure:
        high = statistics.quantiles(values, n=10)[-1] if len(values) > 1 else values[0]
        return Figure(name, statistics.median(values), high)


Measure = Callable[[torch.device, bool], Sequence[Figure]]


@dataclass(frozen=True)
class Subject:
    """A benchmark: `name` is the module and the section of the docs, `targets` are its figures.

    `columns` says what the two numbers of a figure are.
    """

    name: str
    title: str
    description: str
    targets: Mapping[str, Target]
    columns: tuple[str, str] = ("median", "p90")

    @property
    def command(self) -> str:
        return f"python -m benchmarks.{self.name}"

    def is_missed(self, figure: Figure) -> bool:
        limit = self.targets[figure.name].limit
        return limit is not None and figure.median > limit

    def text(self, figure: Figure) -> str:
        target = self.targets[figure.name]
        asked = "no target" if target.limit is None else f"target {target.limit:g} {target.unit}"
        second = f"{self.columns[1]} {figure.p90:.2f} {target.unit}"
        return f"{figure.median:.2f} {target.unit}, {second}, {asked}"

    def show(self, figure: Figure) -> Figure:
        """Prints the line of a figure, and returns it."""
        width = max(map(len, self.targets))
        print(f"{figure.name:>{width}} {self.text(figure)}", flush=True)
        return figure

    def docs_body(self, figures: Sequence[Figure]) -> str:
        """Returns the section for docs/performance.md."""
        rows = []
        for figure in figures:
            target = self.targets[figure.name]
            numbers = [f"{number:.2f} {target.unit}" for number in (figure.median, figure.p90)]
            asked = "" if target.limit is None else f"≤ {target.limit:g} {target.unit}"
            rows.append([f"`{figure.name}`", *numbers, asked])
        methods = "\n".join(f"- `{name}`: {target.method}." for name, target in self.targets.items())
        return f"{markdown_table(['figure', *self.columns, 'target'], rows)}\n\n{methods}"

    def run(self, measure: Measure, arguments: Sequence[str] | None = None) -> int:
        """Runs the benchmark on one intra-op thread; returns the exit status."""
        options = parser(self.description).parse_args(arguments)
        torch.set_num_threads(1)
        figures = measure(torch.device(options.device), options.quick)
        if options.json:
            targets = {name: asdict(target) for name, target in self.targets.items()}
            rows = [asdict(figure) for figure in figures]
            write_json(options.json, {"targets": targets, "command": self.command, "rows": rows})
        if options.write_docs:
            write_docs(self.name, self.title, self.docs_body(figures), self.command)
        missed = [figure for figure in figures if self.is_missed(figure)]
        for figure in missed:
            print(f"missed: {figure.name} {self.text(figure)}")
        return int(options.check and bool(missed))
