"""The cost of an op under the name cuda against the name loom: the ops of `benchmarks.dispatch`.

A name is a process's own, so two processes take turns, block by block; their times of a round make a ratio.
Processes differ by chance as well (where their memory lies): several pairs are measured. Prints a line per
pair, and last for each size the geometric mean of the ops' medians over pairs. Target: see `TARGET`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._common import FULL, QUICK, Budget, Measured, geomean, parser, write_docs, write_json
from tools.blocks import markdown_table

COMMAND = "python -m benchmarks.names"
NAMES = ("loom", "cuda")
TARGET = 1.02
PAIRS = 5


class Process:
    """A process in which the devices have one name, and which times a block of an op when it is asked."""

    def __init__(self, name: str) -> None:
        environment = {**os.environ, "TORCH_LOOM_DEVICE_NAME": name, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.names", "--serve", name],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def ask(self, **what: object) -> float:
        """Prepare an op (``size``, ``op``, ``block_seconds``), or time a block of it (nothing)."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(what), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("a process that was measured has ended; what it says of it stands above")
        return float(answer)


def serve(name: str) -> None:
    """Answer the questions of `Process.ask`, each by a line."""
    import torch

    from benchmarks.dispatch import OPS, SIZES

    torch.manual_seed(0)
    device = torch.device(name)
    measured: Measured | None = None
    for line in sys.stdin:
        what = json.loads(line)
        if what:
            _, statement, operands = OPS[what["op"]]
            on_device = {key: tensor.to(device) for key, tensor in operands(SIZES[what["size"]]).items()}
            measured = Measured(statement, on_device, device)
            measured.fit(what["block_seconds"])
            print(0, flush=True)
        else:
            assert measured is not None
            print(measured.block(), flush=True)


def ratio_of(processes: Sequence[Process], budget: Budget, size: int, op: int) -> float:
    """Return the median over rounds of the second process's time of an op to the first's."""
    for process in processes:
        process.ask(size=size, op=op, block_seconds=budget.block_seconds)
    ratios = []
    for number in range(budget.rounds):
        turns = processes if number % 2 else processes[::-1]
        seconds = {process: process.ask() for process in turns}
        ratios.append(seconds[processes[1]] / seconds[processes[0]])
    return statistics.median(ratios)


def measure_pair(budget: Budget) -> dict[str, dict[str, float]]:
    """Return the ratios of all ops by size, of a pair of processes."""
    from benchmarks.dispatch import OPS, SIZES

    with Process(NAMES[0]) as first, Process(NAMES[1]) as second:
        return {
            size.name: {
                op[0]: ratio_of((first, second), budget, size_number, number) for number, op in enumerate(OPS)
            }
            for size_number, size in enumerate(SIZES)
        }


def docs_body(found: dict[str, float], by_op: dict[str, dict[str, float]]) -> str:
    """Return the section for docs/performance.md."""
    rows = [[f"`{op}`", *(f"{by_op[size][op]:.3f}" for size in by_op)] for op in next(iter(by_op.values()))]
    summary = "; ".join(f"{size}: {value:.3f} (target {TARGET})" for size, value in found.items())
    return (
        f"Time under the name {NAMES[1]} / time under the name {NAMES[0]}, in two processes that take turns; "
        f"medians of {PAIRS} pairs of processes. Geometric mean over ops. {summary}.\n\n"
        f"{markdown_table(['op', *by_op], rows)}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    options_parser = parser(
        f"Time of the ops of benchmarks.dispatch under the name {NAMES[1]} against {NAMES[0]}."
    )
    options_parser.add_argument("--serve", metavar="NAME", help=argparse.SUPPRESS)
    options_parser.add_argument(
        "--pairs", type=int, default=PAIRS, help="of processes (default: %(default)s)"
    )
    options = options_parser.parse_args(arguments)
    if options.serve:
        serve(options.serve)
        return 0
    pairs = []
    for number in range(1 if options.quick else options.pairs):
        pairs.append(measure_pair(QUICK if options.quick else FULL))
        means = {size: geomean(ratios.values()) for size, ratios in pairs[-1].items()}
        print(
            f"pair {number + 1}: " + ", ".join(f"{size} {mean:.3f}" for size, mean in means.items()),
            flush=True,
        )
    by_op = {
        size: {op: statistics.median(pair[size][op] for pair in pairs) for op in ratios}
        for size, ratios in pairs[0].items()
    }
    found = {size: geomean(ratios.values()) for size, ratios in by_op.items()}
    for op in next(iter(by_op.values())):
        print(f"{op:<13} " + ", ".join(f"{size} {by_op[size][op]:.3f}" for size in by_op))
    if options.json:
        write_json(
            options.json, {"names": NAMES, "target": TARGET, "command": COMMAND, **found, "ops": by_op}
        )
    if options.write_docs:
        write_docs("names", "The name cuda", docs_body(found, by_op), COMMAND)
    print("geomean " + ", ".join(f"{size} {value:.3f}" for size, value in found.items()), flush=True)
    return 1 if options.check and any(value > TARGET for value in found.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
