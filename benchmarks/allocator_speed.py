"""Time of an allocation and a free from the cache, next to malloc and to torch.empty on the CPU.

All loops are in C++. "allocator" is the caching allocator itself; "empty loom" and "empty cpu" are PyTorch's
at::empty on either device, allocator and tensor together.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

import torch  # noqa: F401 (before the extension, which needs its libraries)
from torch_loom._C_testing import allocator

from benchmarks._common import parser, write_docs, write_json
from tools.blocks import markdown_table

COMMAND = "python -m benchmarks.allocator_speed"
TARGET_NS = 120.0  # a pair on one thread, in the smallest size
SIZES = {"512 B": 512, "64 KB": 1 << 16, "4 MB": 4 << 20}
THREADS = (1, 4)


@dataclass(frozen=True)
class Row:
    """Medians over rounds: nanoseconds a pair, on each thread."""

    subject: str
    size: str
    threads: int
    ns: float

    def as_json(self) -> dict[str, object]:
        """Returns the row as it is written to files."""
        return {"subject": self.subject, "size": self.size, "threads": self.threads, "pair_ns": self.ns}


def subjects(device: str) -> dict[str, Callable[[int, int, int], list[float]]]:
    """Returns what is timed: (bytes, threads, pairs) -> the mean of each thread."""
    return {
        "allocator": allocator.time_allocator,
        f"empty {device}": lambda size, threads, pairs: allocator.time_empty(device, size, threads, pairs),
        "malloc": allocator.time_malloc,
        "empty cpu": lambda size, threads, pairs: allocator.time_empty("cpu", size, threads, pairs),
    }


def measure(device: str, rounds: int, pairs: int) -> list[Row]:
    """Times all subjects in turns, so that a slow moment of the machine meets all of them.

    A round is shorter than a scheduler's time slice: on a busy machine most rounds are not interrupted.
    """
    rows = []
    for size, num_bytes in SIZES.items():
        for threads in THREADS:
            times: dict[str, list[float]] = {name: [] for name in subjects(device)}
            for _ in range(rounds):
                for name, run in subjects(device).items():
                    times[name].append(statistics.fmean(run(num_bytes, threads, pairs)))
            for name, found in times.items():
                rows.append(Row(name, size, threads, statistics.median(found)))
                print(f"{name:<12} {size:>6} {threads} threads {rows[-1].ns:9.1f} ns a pair", flush=True)
    return rows


def docs_body(rows: Sequence[Row]) -> str:
    """Returns the section for docs/performance.md."""
    names = list(dict.fromkeys(row.subject for row in rows))
    table = [
        [size, str(threads)]
        + [
            f"{row.ns:.0f}"
            for name in names
            for row in rows
            if (row.subject, row.size, row.threads) == (name, size, threads)
        ]
        for size in SIZES
        for threads in THREADS
    ]
    text = (
        "Nanoseconds for an allocation from the cache and its free, as each thread sees them. Target: "
        f"allocator, one thread, 512 B: at most {TARGET_NS:.0f}."
    )
    return f"{text}\n\n{markdown_table(['size', 'threads', *names], table)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    options = parser("Time of an allocation and a free.").parse_args(arguments)
    rows = measure(options.device, *((3, 20_000) if options.quick else (101, 20_000)))
    pair_ns = next(
        row.ns for row in rows if (row.subject, row.size, row.threads) == ("allocator", "512 B", 1)
    )
    if options.json:
        result = {"pair_ns": pair_ns, "target_ns": TARGET_NS, "command": COMMAND}
        write_json(options.json, {**result, "rows": [row.as_json() for row in rows]})
    if options.write_docs:
        write_docs("allocator_speed", "Cost of an allocation", docs_body(rows), COMMAND)
    missed = pair_ns > TARGET_NS
    if missed:
        print(f"missed: {pair_ns:.1f} ns a pair, target {TARGET_NS:.0f}")
    print(f"allocator {pair_ns:.1f} ns a pair on one thread", flush=True)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
