"""Plans of Megatron-LM's functional tests beside what its repository says that they took.

    python -m benchmarks.megatron megatron_a100.json [--case PATTERN] [--last-rank] [--write-docs]

Each case whose model can be built from its arguments is trained in plain PyTorch (see :mod:`.model`) by the
ranks of one pipeline in dry runs of the cluster that the row names. The figures are those of the last rank,
which is the one that logs them. Nothing is fitted to these rows.
"""

from __future__ import annotations

import argparse
import json
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
from torch_loom import chips
from torch_loom.chips import topologies
from torch_loom.distributed import simulate

COMMAND = "python -m benchmarks.megatron"
MIB = 1 << 20
# What the tests set where results are to be reproducible.
_REPRODUCIBLE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


class Figures(NamedTuple):
    """Bytes at the peak and after a step, and seconds of a step; None where they are not known."""

    peak: float | None
    allocated: float | None
    seconds: float | None


class Result(NamedTuple):
    """A case beside its plan."""

    case: str
    measured: Figures
    planned: Figures

    def errors(self) -> list[float | None]:
        """How far each figure is off, as a share of the measured one."""
        return [
            None if measured is None or planned is None else planned / measured - 1.0
            for measured, planned in zip(self.measured, self.planned, strict=True)
        ]


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
    seconds = None if only_last and arguments.pipeline > 1 else found.step_seconds[-1]
    return Figures(found.peak_memory_bytes, allocated[last], seconds)


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
        results.append(Result(row["case"], measured, plans[key]))
        print(_line(results[-1]), flush=True)
    return results


def _line(result: Result) -> str:
    figures = [
        "" if error is None else f"{what} {value / scale:10.3f} {error:+7.1%}"
        for what, value, scale, error in zip(
            ("peak", "after", "step"), result.planned, (MIB, MIB, 1.0), result.errors(), strict=True
        )
        if value is not None
    ]
    return f"{result.case:100} " + "  ".join(figures)


def summary(results: Sequence[Result], left_out: Counter[str]) -> list[str]:
    """Return the mean errors and what was left out, in lines."""
    lines = []
    for place, what in enumerate(("peak memory", "memory after a step", "step time")):
        errors = [(abs(error), each.case) for each in results if (error := each.errors()[place]) is not None]
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
        for value, scale, digits, error in zip(
            each.planned, (MIB, MIB, 1e-3), (0, 0, 0), each.errors(), strict=True
        ):
            known = value is not None and error is not None
            cells += [f"{value / scale:,.{digits}f}", f"{error:+.1%}"] if known else ["", ""]
        table.append(cells)
    header = ["case", "peak MiB", "error", "after MiB", "error", "step ms", "error"]
    return (
        f"The last rank of Megatron-LM's functional tests, planned, and how far that is from what {source} "
        "says. The models are plain PyTorch built from the arguments of each case; nothing is fitted to "
        "these rows. Targets: peak memory within 3% on average, steps within 15%.\n\n"
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
    results = results_of(rows, options.last_rank, left_out)
    lines = summary(results, left_out)
    print("\n".join(lines))
    if options.write_docs:
        source = str(content.get("source", options.file.name))
        body = docs_body(results, [f"Cases: `{options.case}`.", *lines] if options.case else lines, source)
        write_docs("megatron", "Megatron-LM, against its published figures", body, COMMAND)
    return 0


if __name__ == "__main__":
    sys.exit(main())
