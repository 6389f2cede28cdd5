"""Alternating measurement of one statement on two devices, and the report: lines, JSON, docs."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import timeit
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from tools.blocks import has_block, markdown_table, replace_block

DOCS_FILE = Path(__file__).parent.parent / "docs" / "performance.md"
DOCS_TITLE = "# Performance\n\nWritten by the commands named in each section; lower ratios are better.\n"


@dataclass(frozen=True)
class Budget:
    """How long to measure: rounds of one block for each device, and how long a block is at least."""

    rounds: int
    block_seconds: float


FULL = Budget(rounds=41, block_seconds=2e-3)
QUICK = Budget(rounds=3, block_seconds=2e-4)


@dataclass(frozen=True)
class Row:
    """Medians of one case: seconds a run on each device, and the median over rounds of their ratio."""

    name: str
    cpu_seconds: float
    device_seconds: float
    ratio: float

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "cpu_us": self.cpu_seconds * 1e6,
            "device_us": self.device_seconds * 1e6,
            "ratio": self.ratio,
        }


def synchronizer(device: torch.device) -> Callable[[], None]:
    """Returns a function that waits for the device; nothing to do for the CPU."""
    if device.type == "cpu":
        return lambda: None
    module = torch.get_device_module(device)
    return lambda: module.synchronize(device)


class Measured:
    """A statement with its names, timed in blocks of enough runs to fill the budget's block length."""

    def __init__(self, statement: str, names: Mapping[str, object], device: torch.device) -> None:
        # The statement is compiled into the timing loop: no call of ours stands between two runs.
        self.timer = timeit.Timer(statement, globals={"torch": torch, **names})
        self.synchronize = synchronizer(device)
        self.runs = 1

    def block(self) -> float:
        """Runs one block and waits for it; returns seconds a run."""
        self.synchronize()
        began = timeit.default_timer()
        self.timer.timeit(self.runs)
        self.synchronize()
        return (timeit.default_timer() - began) / self.runs

    def fit(self, block_seconds: float) -> None:
        """Warms up and finds the number of runs that fills a block."""
        self.block()
        self.block()
        while (seconds := self.block() * self.runs) < block_seconds:
            growth = block_seconds / max(seconds, block_seconds / 10)
            self.runs = math.ceil(self.runs * growth * 1.1)


def alternate(name: str, cpu: Measured, other: Measured, budget: Budget) -> Row:
    """Times blocks of both in turns, the first of a round changing with every round."""
    cpu.fit(budget.block_seconds)
    other.fit(budget.block_seconds)
    pairs: list[tuple[float, float]] = []
    for number in range(budget.rounds):
        if number % 2:
            cpu_seconds = cpu.block()
            other_seconds = other.block()
        else:
            other_seconds = other.block()
            cpu_seconds = cpu.block()
        pairs.append((cpu_seconds, other_seconds))
    return Row(
        name,
        statistics.median(pair[0] for pair in pairs),
        statistics.median(pair[1] for pair in pairs),
        statistics.median(pair[1] / pair[0] for pair in pairs),
    )


def table_of(rows: Iterable[Row], target: Callable[[str], float]) -> str:
    """Returns the rows as a table of Markdown, each with how large the ratio of its case may be."""
    lines = [
        [
            row.name,
            f"{row.cpu_seconds * 1e3:.3f}",
            f"{row.device_seconds * 1e3:.3f}",
            f"{row.ratio:.2f}",
            f"{target(row.name)}",
        ]
        for row in rows
    ]
    return markdown_table(["case", "cpu ms", "loom ms", "ratio", "at most"], lines)


class Parser(argparse.ArgumentParser):
    """Options of which --quick and --write-docs exclude each other: short rounds give no numbers."""

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        options = super().parse_args(*args, **kwargs)
        if options.quick and options.write_docs:
            self.error("--write-docs: --quick gives no numbers; leave it out")
        return options


def parser(description: str) -> argparse.ArgumentParser:
    """Returns the options that every benchmark has."""
    result = Parser(description=description)
    _add_write_docs(result)
    result.add_argument(
        "--device", default="loom", help="what is compared with the CPU (default: %(default)s)"
    )
    result.add_argument("--json", type=Path, metavar="FILE", help="write the result to FILE")
    result.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    result.add_argument("--quick", action="store_true", help="a few short rounds: for tests, not for numbers")
    return result


def plain_parser(doc: str | None, *, chip: bool = True, docs: bool = True) -> argparse.ArgumentParser:
    """Returns the options of what compares no devices, described by the first line of `doc`."""
    result = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else "")
    if chip:
        result.add_argument("--chip", default="h200", help="name or description of the chip")
    if docs:
        _add_write_docs(result)
    return result


def _add_write_docs(to: argparse.ArgumentParser) -> None:
    to.add_argument("--write-docs", action="store_true", help="write the result into docs/performance.md")


def machine() -> str:
    """Returns CPU model, cores and the threads torch uses, in words."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = found[0].split(":", 1)[1].strip() if found else model
    return f"{model}, {os.cpu_count()} cores, {torch.get_num_threads()} intra-op threads"


def versions() -> str:
    """Returns the versions that a result depends on."""
    return f"torch {torch.__version__}, Python {platform.python_version()}, {platform.system()}"


def geomean(ratios: Iterable[float]) -> float:
    """Returns the geometric mean."""
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


def write_json(path: Path, result: Mapping[str, object]) -> None:
    """Writes `result` with machine and versions added."""
    path.write_text(json.dumps({"machine": machine(), "versions": versions(), **result}, indent=1) + "\n")


def report_rows(options: argparse.Namespace, rows: Iterable[Row], command: str) -> None:
    """Writes rows without targets where `--json` says."""
    if options.json:
        write_json(options.json, {"command": command, "rows": [row.as_json() for row in rows]})


def write_docs(subject: str, title: str, body: str, command: str) -> None:
    """Writes the section of `subject` in docs/performance.md, adding it if it is not there."""
    text = DOCS_FILE.read_text() if DOCS_FILE.exists() else DOCS_TITLE
    if not has_block(text, subject):
        text += f"\n<!-- begin {subject}: written by {command} --write-docs -->\n<!-- end {subject} -->\n"
    day = datetime.now(timezone.utc).date().isoformat()
    source = f"Measured {day} with `{command}` on {machine()}; {versions()}."
    DOCS_FILE.parent.mkdir(exist_ok=True)
    DOCS_FILE.write_text(replace_block(text, subject, f"## {title}\n\n{source}\n\n{body}"))
