"""What it costs to listen to the tape: a native reader of every field of every kernel, and the clock's hook.

One intra-op thread. Prints median and 90th percentile over rounds; `METHODS` says how each is measured.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import thread_time_ns

import torch

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._common import parser, write_docs, write_json
from tools.blocks import markdown_table
from torch_loom import _C, _C_testing

COMMAND = "python -m benchmarks.tape"
TARGETS = {"native reader": 60.0, "clock hook": 5.0}
METHODS = {
    "native reader": "`torch.add(x, y)` on four elements, 100,000 times in blocks, with a reader of C++ "
    "attached and without one in turns: what it adds to an op, in time of the thread. It is told of each "
    "kernel's begin and end, and reads op, class, states, sizes, strides, bytes of inputs and outputs, and "
    "the attributes",
    "clock hook": "a reading of the clock through the place where another source of time can be put, less "
    "one past it",
}
BLOCK = 1000


@dataclass(frozen=True)
class Figure:
    """One result, in nanoseconds. `p90` is the 90th percentile over rounds."""

    name: str
    median: float
    p90: float

    @staticmethod
    def of(name: str, values: Sequence[float]) -> Figure:
        return Figure(name, statistics.median(values), statistics.quantiles(values, n=10)[-1])

    @property
    def missed(self) -> bool:
        return self.median > TARGETS[self.name]

    def text(self) -> str:
        return f"{self.median:.1f} ns, p90 {self.p90:.1f} ns, target {TARGETS[self.name]:g} ns"


def block(work: Callable[[], object]) -> float:
    """Returns nanoseconds of this thread a call, over one block."""
    began = thread_time_ns()
    for _ in range(BLOCK):
        work()
    return (thread_time_ns() - began) / BLOCK


def reader_nanoseconds(device: torch.device, rounds: int) -> list[float]:
    """Returns for each round what a native reader adds to a tiny op."""
    x, y = torch.ones(4, device=device), torch.ones(4, device=device)

    def work() -> torch.Tensor:
        return torch.add(x, y)

    counter = _C.KernelCounter()
    block(work)
    found = []
    for _ in range(rounds):
        without = block(work)
        counter.attach()
        listening = block(work)
        counter.detach()
        found.append(listening - without)
    assert counter.counts()["ended"] == rounds * BLOCK, "the reader has not heard of every op"
    return found


def hook_nanoseconds(rounds: int) -> list[float]:
    """Returns for each round what the hook adds to a reading of the clock."""
    costs = [_C_testing.clock.cost(BLOCK * 10) for _ in range(rounds)]
    return [through - past for through, past in costs]


def measure(device: torch.device, quick: bool) -> list[Figure]:
    """Measures both figures, printing a line each."""
    rounds = 3 if quick else 100
    found = [
        Figure.of("native reader", reader_nanoseconds(device, rounds)),
        Figure.of("clock hook", hook_nanoseconds(rounds)),
    ]
    for figure in found:
        print(f"{figure.name:>13} {figure.text()}", flush=True)
    return found


def docs_body(figures: Sequence[Figure]) -> str:
    """Returns the section for docs/performance.md."""
    rows = [
        [f"`{one.name}`", f"{one.median:.1f} ns", f"{one.p90:.1f} ns", f"≤ {TARGETS[one.name]:g} ns"]
        for one in figures
    ]
    methods = "\n".join(f"- `{name}`: {method}." for name, method in METHODS.items())
    return f"{markdown_table(['figure', 'median', 'p90', 'target'], rows)}\n\n{methods}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    options = parser("What it costs to listen to the tape.").parse_args(arguments)
    torch.set_num_threads(1)
    figures = measure(torch.device(options.device), options.quick)
    if options.json:
        rows = [asdict(figure) for figure in figures]
        write_json(options.json, {"targets": TARGETS, "command": COMMAND, "rows": rows})
    if options.write_docs:
        write_docs("tape", "Listening to the tape", docs_body(figures), COMMAND)
    return int(options.check and any(figure.missed for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
