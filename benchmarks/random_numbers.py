"""How fast CUDA's random numbers are drawn, beside the CPU's own generator.

A million numbers a call, in turns in one process: the time of ours over that of the CPU's. `SUBJECT` says how
each is measured.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns

os.environ.setdefault("TORCH_LOOM_RNG", "cuda")
os.environ.setdefault("TORCH_LOOM_CHIP", "h200")

import torch

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._figures import Figure, Subject, Target

COUNT = 1_000_000
KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rand": lambda out: out.uniform_(),
    "randn": lambda out: out.normal_(),
}
THREADS = (1, 2)

SUBJECT = Subject(
    "random_numbers",
    "Random numbers",
    "How long CUDA's random numbers take, as multiples of the CPU's own.",
    {
        f"{kind}, {threads} thread{'s' * (threads > 1)}": Target(
            1.0,
            "times",
            f"the time of `torch.{kind}` of a million float32 numbers on an H200 with {threads} intra-op "
            f"thread{'s' * (threads > 1)}, over that of the CPU's generator, in turns",
        )
        for kind in KINDS
        for threads in THREADS
    },
)


def seconds(draw: Callable[[torch.Tensor], torch.Tensor], out: torch.Tensor) -> float:
    """Returns the time of one call."""
    began = perf_counter_ns()
    draw(out)
    return (perf_counter_ns() - began) / 1e9


def measure(device: torch.device, quick: bool) -> list[Figure]:
    """Measures the figures, printing a line each."""
    count, rounds = (COUNT // 10, 3) if quick else (COUNT, 100)
    own, host = torch.empty(count, device=device), torch.empty(count)
    threads_before, found = torch.get_num_threads(), []
    try:
        for kind, draw in KINDS.items():
            for threads in THREADS:
                torch.set_num_threads(threads)
                draw(own), draw(host)
                shares = [seconds(draw, own) / seconds(draw, host) for _ in range(rounds)]
                name = f"{kind}, {threads} thread{'s' * (threads > 1)}"
                found.append(SUBJECT.show(Figure.of(name, shares)))
    finally:
        torch.set_num_threads(threads_before)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    return SUBJECT.run(lambda *how: measure(*how), arguments)


if __name__ == "__main__":
    sys.exit(main())
