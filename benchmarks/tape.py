"""What it costs to listen to the tape: a native reader of every field of every kernel, and the clock's hook.

One intra-op thread. Prints median and 90th percentile over rounds; `SUBJECT` says how each is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import thread_time_ns

import torch

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._figures import Figure, Subject, Target
from torch_loom import _C, _C_testing

SUBJECT = Subject(
    "tape",
    "Listening to the tape",
    "What it costs to listen to the tape.",
    {
        "native reader": Target(
            60.0,
            "ns",
            "`torch.add(x, y)` on four elements, 100,000 times in blocks, with a reader of C++ and "
            "without one in turns: what it adds to an op, in time of the thread. It is told of each "
            "kernel's begin and end, and reads op, class, states, sizes, strides, bytes of inputs and "
            "outputs, and the attributes",
        ),
        "reader of ends": Target(60.0, "ns", "the same for a reader that wants ends alone, as a clock does"),
        "clock hook": Target(
            5.0,
            "ns",
            "a reading of the clock through the place where another source of time can be put, less one past "
            "it",
        ),
    },
)
BLOCK = 1000


def block(work: Callable[[], object]) -> float:
    """Returns nanoseconds of this thread a call, over one block."""
    began = thread_time_ns()
    for _ in range(BLOCK):
        work()
    return (thread_time_ns() - began) / BLOCK


def reader_nanoseconds(device: torch.device, rounds: int, counts_begins: bool) -> list[float]:
    """Returns for each round what a native reader adds to a tiny op."""
    x, y = torch.ones(4, device=device), torch.ones(4, device=device)

    def work() -> torch.Tensor:
        return torch.add(x, y)

    counter = _C.KernelCounter(counts_begins)
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
    """Measures the figures, printing a line each."""
    rounds = 3 if quick else 100
    found = [
        Figure.of("native reader", reader_nanoseconds(device, rounds, counts_begins=True)),
        Figure.of("reader of ends", reader_nanoseconds(device, rounds, counts_begins=False)),
        Figure.of("clock hook", hook_nanoseconds(rounds)),
    ]
    return [SUBJECT.show(figure) for figure in found]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    return SUBJECT.run(lambda *how: measure(*how), arguments)


if __name__ == "__main__":
    sys.exit(main())
