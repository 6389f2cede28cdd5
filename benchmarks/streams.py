"""What asynchronous execution costs and gives: overlap of two streams, issuing an op, its start on a worker.

One intra-op thread. Prints median and 90th percentile of each figure; `SUBJECT` says how each is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._figures import Figure, Subject, Target

SUBJECT = Subject(
    "streams",
    "Streams",
    "Overlap of streams, and what an op on one costs.",
    {
        "overlap": Target(
            1.2,
            "times",
            "a copy of pinned memory to the device and a matmul of about that length, on a stream each: the "
            "time of both, from the first call to the end of the last, over that of the longer one alone",
        ),
        "issue": Target(
            5.0,
            "µs",
            "time in the caller of `torch.add(x, y)` on four elements, in blocks of 64 on a side stream",
        ),
        "side": Target(
            2.5,
            "times",
            "that time over the caller's time for the same on the default stream, which includes running it; "
            "blocks in turn",
        ),
        "start": Target(
            10.0,
            "µs",
            "an upper bound: on a stream whose worker has just finished, from an event before "
            "`torch.add(x, y)` (an idle stream reaches it in the caller) to one behind it (reached on the "
            "worker); issuing and running the op are in it",
        ),
    },
)
COPY_BYTES = 64 << 20
BLOCK = 64


class Copy:
    """A copy from pinned memory on a stream of its own."""

    def __init__(self, device: torch.device, num_bytes: int) -> None:
        self.stream = torch.Stream(device=device)
        self.source = torch.ones(num_bytes, dtype=torch.uint8).pin_memory()
        self.target = torch.zeros(num_bytes, dtype=torch.uint8, device=device)

    def issue(self) -> None:
        with self.stream:
            self.target.copy_(self.source, non_blocking=True)


class Matmul:
    """A product of two square matrices on a stream of its own."""

    def __init__(self, device: torch.device, size: int) -> None:
        self.stream = torch.Stream(device=device)
        self.x = torch.rand(size, size, device=device)
        self.out = torch.empty(size, size, device=device)

    def issue(self) -> None:
        with self.stream:
            torch.mm(self.x, self.x, out=self.out)


def seconds(*works: Copy | Matmul) -> float:
    """Returns the time from issuing all works to the end of the last one."""
    for work in works:
        work.stream.synchronize()
    began = perf_counter()
    for work in works:
        work.issue()
    for work in works:
        work.stream.synchronize()
    return perf_counter() - began


def matmul_as_long_as(copy: Copy, device: torch.device) -> Matmul:
    """Returns a product that takes about as long as the copy."""
    size = 256
    for _ in range(4):
        matmul = Matmul(device, size)
        wanted, taken = (min(seconds(work) for _ in range(7)) for work in (copy, matmul))
        size = max(64, round(size * (wanted / taken) ** (1 / 3) / 16) * 16)
    return Matmul(device, size)


def overlap(device: torch.device, rounds: int, num_bytes: int) -> list[float]:
    """Returns for each round the time of both works over that of the longer one alone."""
    copy = Copy(device, num_bytes)
    matmul = matmul_as_long_as(copy, device)
    seconds(copy, matmul)
    torch.accelerator.synchronize(device)
    ratios = []
    for _ in range(rounds):
        alone = seconds(copy), seconds(matmul)
        ratios.append(seconds(copy, matmul) / max(alone))
    assert bool(copy.target.all()), "the copy has not arrived"
    torch.testing.assert_close(matmul.out, matmul.x @ matmul.x)
    return ratios


def operands(device: torch.device) -> tuple[Tensor, Tensor]:
    x, y = torch.ones(4, device=device), torch.ones(4, device=device)
    torch.accelerator.synchronize(device)
    return x, y


def issue_microseconds(device: torch.device, rounds: int) -> list[float]:
    """Returns for each block the caller's time for one op."""
    x, y = operands(device)
    stream = torch.Stream(device=device)
    add = torch.add
    times = []
    with stream:
        for _ in range(rounds):
            stream.synchronize()
            add(x, y)
            began = perf_counter()
            for _ in range(BLOCK):
                add(x, y)
            times.append((perf_counter() - began) / BLOCK * 1e6)
        stream.synchronize()
    return times


def side_ratios(device: torch.device, rounds: int) -> list[float]:
    """Returns for each pair of blocks the caller's time on a side stream over that on the default stream."""
    x, y = operands(device)
    default, side = torch.accelerator.current_stream(device), torch.Stream(device=device)
    ratios = []
    for _ in range(rounds):
        times = []
        for stream in (default, side):
            with stream:
                stream.synchronize()
                torch.add(x, y)
                began = perf_counter()
                for _ in range(BLOCK):
                    torch.add(x, y)
                times.append(perf_counter() - began)
        ratios.append(times[1] / times[0])
    torch.accelerator.synchronize(device)
    return ratios


def start_microseconds(device: torch.device, rounds: int) -> list[float]:
    """Returns for each op the time from just before it was issued to its end on an awake worker."""
    x, y = operands(device)
    stream = torch.Stream(device=device)
    times = []
    with stream:
        torch.add(x, y)
        for _ in range(rounds):
            before, behind = (torch.Event(device=device, enable_timing=True) for _ in range(2))
            torch.add(x, y)
            while not stream.query():
                pass
            before.record()
            torch.add(x, y)
            behind.record()
            stream.synchronize()
            times.append(before.elapsed_time(behind) * 1e3)
    return times


def measure(device: torch.device, quick: bool) -> list[Figure]:
    """Measures every figure, printing a line each."""
    few, many = (3, 20) if quick else (31, 2000)
    found = [
        Figure.of("overlap", overlap(device, few, COPY_BYTES >> (6 if quick else 0))),
        Figure.of("issue", issue_microseconds(device, many)),
        Figure.of("side", side_ratios(device, many)),
        Figure.of("start", start_microseconds(device, many)),
    ]
    return [SUBJECT.show(figure) for figure in found]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    return SUBJECT.run(lambda *how: measure(*how), arguments)


if __name__ == "__main__":
    raise SystemExit(main())
