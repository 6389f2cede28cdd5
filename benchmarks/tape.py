"""What it costs to listen to the tape: a reader of every field of every kernel, the clock's hook, the clock.

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
from torch_loom.device._core import clock

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
        "simulated clock": Target(
            40.0,
            "ns",
            "what simulated time adds to `torch.add(x, y)` on four elements, whose cost is known, in "
            "turns likewise",
        ),
        "simulated clock, op through the boxed kernel": Target(
            40.0, "ns", "the same of `torch.abs(x)`, an op without a kernel of its own signature"
        ),
        "simulated clock, 1 MB": Target(
            3.0, "%", "the same of `torch.add(x, y)` on 1 MB, as a share of what the op takes"
        ),
        "clock hook": Target(
            5.0,
            "ns",
            "a reading of the clock through the place where another source of time can be put, less one past "
            "it",
        ),
    },
)
BLOCK = 1000


def block(work: Callable[[], object], size: int = BLOCK) -> float:
    """Returns nanoseconds of this thread a call, over one block."""
    began = thread_time_ns()
    for _ in range(size):
        work()
    return (thread_time_ns() - began) / size


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


def clock_nanoseconds(
    work: Callable[[], object], rounds: int, block_size: int = BLOCK
) -> list[tuple[float, float]]:
    """Returns for each round what simulated time adds to an op, and what the op takes without."""

    def settled() -> float:
        with clock.simulated():
            return block(work, block_size)

    block(work, block_size)
    with clock.simulated():
        work()
        torch.loom.clock()  # its cost is asked for
    settled()
    found = []
    for _ in range(rounds):
        without = block(work, block_size)
        found.append((settled() - without, without))
    return found


def clock_figures(device: torch.device, rounds: int) -> list[Figure]:
    """Measures what simulated time costs."""
    x, y = torch.ones(4, device=device), torch.ones(4, device=device)
    large, other = (torch.ones(1 << 18, device=device) for _ in range(2))
    tiny = clock_nanoseconds(lambda: torch.add(x, y), rounds)
    boxed = clock_nanoseconds(lambda: torch.abs(x), rounds)
    megabyte = clock_nanoseconds(lambda: torch.add(large, other), rounds, BLOCK // 10)
    return [
        Figure.of("simulated clock", [more for more, _ in tiny]),
        Figure.of("simulated clock, op through the boxed kernel", [more for more, _ in boxed]),
        Figure.of("simulated clock, 1 MB", [100 * more / without for more, without in megabyte]),
    ]


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
        *clock_figures(device, rounds),
        Figure.of("clock hook", hook_nanoseconds(rounds)),
    ]
    return [SUBJECT.show(figure) for figure in found]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    return SUBJECT.run(lambda *how: measure(*how), arguments)


if __name__ == "__main__":
    sys.exit(main())
