"""Plans of Megatron-LM's functional tests beside what its repository says that they took.

    python -m benchmarks.megatron megatron_a100.json [--case PATTERN] [--last-rank] [--write-docs]

Each case whose model can be built from its arguments is trained in plain PyTorch (see :mod:`.model`) by the
ranks of one pipeline in dry runs of the cluster that the row names. The figures are those of the last rank,
which is the one that logs them. Of memory nothing is fitted to these rows. Most steps wait for the host, on
which Megatron-LM runs much Python around each op and each step: what a command takes there, and what a step
takes beside its commands, are found from half of the plans, by a hash of what they train, and all are planned
again with the first (``TORCH_LOOM_HOST_ISSUE``) and given the second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import os
import re
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._common import write_docs
from benchmarks.megatron.arguments import WORLD_SIZE, Arguments, UnplannedError, read, rows_of
from benchmarks.megatron.training import train
from tools.blocks import markdown_table
from torch_loom import chips, config
from torch_loom.chips import topologies
from torch_loom.chips.cost import sweep
from torch_loom.distributed import simulate

COMMAND = "python -m benchmarks.megatron"
MIB = 1 << 20
# Steps are planned with the chip's host and with one so many times as slow, for what lies between.
_SLOWER = 2.0
# What the tests set where results are to be reproducible.
_REPRODUCIBLE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


class Figures(NamedTuple):
    """Bytes at the peak and after a step, and seconds of a step; None where they are not known."""

    peak: float | None
    allocated: float | None
    seconds: float | None


class Host(NamedTuple):
    """What a host takes: microseconds for a command, and seconds for a step beside its commands."""

    issue_us: float
    step_seconds: float


class Result(NamedTuple):
    """A case beside its plan.

    ``seconds`` are those of a step with the host that was found; None: none was, or the step was not timed.
    """

    case: str
    topology: str
    arguments: Arguments
    measured: Figures
    planned: Figures
    seconds: float | None = None

    def errors(self) -> list[float | None]:
        """How far each figure is off, as a share of the measured one; last, the time with the host found."""
        measured, planned = self.measured, self.planned
        pairs = [*zip(measured[:3], planned[:3], strict=True), (measured.seconds, self.seconds)]
        return [None if each is None or other is None else other / each - 1.0 for each, other in pairs]

    @property
    def is_timed(self) -> bool:
        """Whether the time of a step is known and planned."""
        return self.measured.seconds is not None and self.planned.seconds is not None

    @property
    def is_fitted(self) -> bool:
        """Whether the host is found from this one."""
        return sweep.is_fitted(f"megatron {self.topology} {self.arguments}")


def planned(arguments: Arguments, topology: str, only_last: bool) -> Figures:
    """Return the figures of the last rank, alone or with the other ranks of its pipeline."""
    of_stage = WORLD_SIZE // arguments.pipeline
    last = WORLD_SIZE - 1
    ranks = [last] if only_last else list(range(of_stage - 1, WORLD_SIZE, of_stage))
    # One that ranks have whether they are forked or new processes.
    allocated = multiprocessing.get_context("spawn").Array("q", WORLD_SIZE)
    capability = chips.load(topologies.load(topology).chip).capability_major
    kept = {name: os.environ.pop(name, None) for name in _REPRODUCIBLE}
    try:
        if arguments.is_deterministic:
            os.environ.update(_REPRODUCIBLE)
        found = simulate(world_size=WORLD_SIZE, topology=topology, ranks=ranks)(
            train, arguments, capability, allocated
        ).ranks[last]
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
    if only_last and arguments.pipeline > 1:
        return Figures(found.peak_memory_bytes, allocated[last], None)
    return Figures(found.peak_memory_bytes, allocated[last], found.step_seconds[-1])


def results_of(rows: Sequence[dict[str, Any]], only_last: bool, left_out: Counter[str]) -> list[Result]:
    """Plan rows, each kind of training once, and count in ``left_out`` why others are not."""
    plans: dict[tuple[Arguments, str], Figures] = {}
    results = []
    for row in rows:
        topology = "dgx-" + row["hw"].removeprefix("dgx").removeprefix("_")
        try:
            if topology not in topologies.available():
                raise UnplannedError(f"no cluster {topology}")
            arguments = read(row["case"], row["hw"], row["args"])
        except UnplannedError as error:
            left_out[str(error)] += 1
            continue
        key = arguments, topology
        if key not in plans:
            plans[key] = planned(arguments, topology, only_last)
        measured = Figures(row.get("peak_bytes"), row.get("allocated_bytes"), row.get("iteration_s"))
        results.append(Result(row["case"], topology, arguments, measured, plans[key]))
        print(_line(results[-1]), flush=True)
    return results


def with_hosts(results: Sequence[Result], only_last: bool) -> tuple[list[Result], list[str]]:
    """Find what the host of each cluster takes, and plan the steps that were timed with it.

    Returns the results with these times, and lines that say what was found.
    """
    plans: dict[tuple[Arguments, str, float], float | None] = {}

    def seconds_with(issue_us: float, result: Result) -> float:
        key = result.arguments, result.topology, issue_us
        if key not in plans:
            with config.exported({"host_issue": str(issue_us)}):
                plans[key] = planned(result.arguments, result.topology, only_last).seconds
        return plans[key] or 0.0

    hosts, lines = {}, []
    for topology in sorted({each.topology for each in results}):
        usual_us = chips.with_host(chips.load(topologies.load(topology).chip)).host_issue_ns / 1e3
        fitted = [each for each in results if each.topology == topology and each.is_fitted and each.is_timed]
        if len({each.arguments for each in fitted}) < 2:
            continue  # two figures are to be found
        lines_of = []
        for each in fitted:
            usual = each.planned.seconds or 0.0
            grows = (seconds_with(_SLOWER * usual_us, each) - usual) / ((_SLOWER - 1.0) * usual_us)
            lines_of.append((grows, usual - grows * usual_us, each.measured.seconds or 0.0))
        host = _found(lines_of)
        hosts[topology] = host
        lines.append(
            f"host of {topology}: {host.issue_us:.0f} us a command and {host.step_seconds * 1e3:.0f} ms a "
            f"step beside them, from {len(fitted)} rows; the chip's is {usual_us:.0f} us a command"
        )
    again = []
    for each in results:
        seconds = None
        if each.topology in hosts and each.is_timed:
            host = hosts[each.topology]
            seconds = seconds_with(host.issue_us, each) + host.step_seconds
        again.append(each._replace(seconds=seconds))
    return again, lines


def _found(steps: Sequence[tuple[float, float, float]]) -> Host:
    """Return the host with which the mean relative error of steps is least.

    Args:
        steps: of each the seconds by which it grows with a microsecond of a command, those that it takes
            with a host that takes none, and those that were measured.
    """

    def error(host: Host) -> float:
        return math.fsum(
            abs(grows * host.issue_us + rest + host.step_seconds - measured) / measured
            for grows, rest, measured in steps
        )

    # The least sum of absolute errors has none at two of the steps, or at one where the other figure is 0.
    hosts = [Host(0.0, 0.0)]
    for grows, rest, measured in steps:
        hosts.append(Host(0.0, measured - rest))
        if grows > 0.0:
            hosts.append(Host((measured - rest) / grows, 0.0))
    for (grows, rest, measured), (of_other, rest_of_other, other) in itertools.combinations(steps, 2):
        if grows != of_other:
            issue_us = (measured - rest - other + rest_of_other) / (grows - of_other)
            hosts.append(Host(issue_us, measured - rest - grows * issue_us))
    return min((each for each in hosts if min(each) >= 0.0), key=error)


def _line(result: Result) -> str:
    figures = [
        "" if error is None else f"{what} {value / scale:10.3f} {error:+7.1%}"
        for what, value, scale, error in zip(
            ("peak", "after", "step"), result.planned[:3], (MIB, MIB, 1.0), result.errors()[:3], strict=True
        )
        if value is not None
    ]
    return f"{result.case:100} " + "  ".join(figures)


def summary(results: Sequence[Result], left_out: Counter[str]) -> list[str]:
    """Return the mean errors and what was left out, in lines."""
    lines = []
    halves = [
        (place, what, results)
        for place, what in enumerate(("peak memory", "memory after a step", "step time with the chip's host"))
    ]
    for name, is_fitted in (("not fitted", False), ("fitted", True)):
        half = [each for each in results if each.is_fitted is is_fitted]
        halves.append((3, f"step time with the host found, {name}", half))
    for place, what, rows in halves:
        errors = [(abs(error), each.case) for each in rows if (error := each.errors()[place]) is not None]
        if errors:
            mean = statistics.fmean(size for size, _ in errors)
            worst, case = max(errors)
            lines.append(f"{what}: mean error {mean:.1%} over {len(errors)} rows, worst {worst:.1%} ({case})")
    if left_out:
        told = ", ".join(f"{count} with {why}" for why, count in left_out.most_common())
        lines.append(f"not planned: {told}")
    return lines


def docs_body(results: Sequence[Result], lines: Sequence[str], source: str) -> str:
    """Return the section for docs/performance.md."""
    table = []
    for each in results:
        cells = [each.case]
        figures = (each.planned.peak, each.planned.allocated, each.seconds)
        of_figures = [error for place, error in enumerate(each.errors()) if place != 2]
        for value, scale, error in zip(figures, (MIB, MIB, 1e-3), of_figures, strict=True):
            known = value is not None and error is not None
            cells += [f"{value / scale:,.0f}", f"{error:+.1%}"] if known else ["", ""]
        cells.append("fitted" if each.is_fitted and each.seconds is not None else "")
        table.append(cells)
    header = ["case", "peak MiB", "error", "after MiB", "error", "step ms", "error", "half"]
    return (
        f"The last rank of Megatron-LM's functional tests, planned, and how far that is from what {source} "
        "says. The models are plain PyTorch built from the arguments of each case; of memory nothing is "
        "fitted to these rows. Most steps wait for the host, which runs Megatron-LM's Python: two figures, "
        "what a command takes and what a step takes beside its commands, are found from half of the plans. "
        "Targets: peak memory within 3% on average, steps within 15%.\n\n"
        + "\n\n".join(lines)
        + "\n\n"
        + markdown_table(header, table)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 2 if the file cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path, help="published figures of cases with their arguments")
    parser.add_argument("--case", default="", help="only cases whose names have this regular expression")
    parser.add_argument(
        "--last-rank", action="store_true", help="only the last rank: memory, and time without pipelines"
    )
    parser.add_argument("--write-docs", action="store_true", help="write the result into docs/performance.md")
    options = parser.parse_args(arguments)
    try:
        content = json.loads(options.file.read_bytes())
        rows = [row for row in rows_of(content) if re.search(options.case, row["case"])]
    except (OSError, ValueError, re.error) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    left_out: Counter[str] = Counter()
    results, hosts = with_hosts(results_of(rows, options.last_rank, left_out), options.last_rank)
    lines = [*hosts, *summary(results, left_out)]
    print("\n".join(lines))
    if options.write_docs:
        source = str(content.get("source", options.file.name))
        body = docs_body(results, [f"Cases: `{options.case}`.", *lines] if options.case else lines, source)
        write_docs("megatron", "Megatron-LM, against its published figures", body, COMMAND)
    return 0


if __name__ == "__main__":
    sys.exit(main())
