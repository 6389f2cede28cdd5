"""Collectives of two ranks against gloo's on tensors of the host, in turns, in the same processes.

    python -m benchmarks.collectives

A run counts until its result is there for the host, and takes as long as on the slower rank. Medians.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._common import (
    FULL,
    QUICK,
    Budget,
    Measured,
    Row,
    alternate,
    parser,
    synchronizer,
    write_docs,
    write_json,
)
from tools.blocks import markdown_table

COMMAND = "python -m benchmarks.collectives"
RANKS = 2
# How many microseconds a case may take, or how many times as long as gloo.
LIMITS_US = {"all_reduce, 16 B": 60.0}
TARGETS = {
    "all_reduce, 64 MiB": 1.0,
    "send and receive, 1 MiB": 1.0,
    "send and receive, 64 MiB": 1.0,
    "DDP step": 1.0,
}
_MIB = 1 << 20
# Of the DDP step: layers of a square matrix each, and the rows of a rank's batch.
_LAYERS, _WIDTH, _BATCH = 8, 1024, 64


@dataclass(frozen=True)
class Case:
    """What both sides run: from a device, the function that is timed."""

    name: str
    on: Callable[[torch.device], Callable[[], object]]


class Together(Measured):
    """A function that all ranks run at once; a block takes as long as on the slowest rank.

    The ranks agree about the seconds, and so about how many runs fill a block.
    """

    def __init__(self, run: Callable[[], object], device: torch.device) -> None:
        super().__init__("run(); wait()", {"run": run, "wait": synchronizer(device)}, device)

    def block(self) -> float:
        dist.all_reduce(torch.zeros(1))  # of gloo: all begin together
        seconds = torch.tensor([super().block()], dtype=torch.float64)
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        return seconds.item()


def all_reduce(num_bytes: int) -> Callable[[torch.device], Callable[[], object]]:
    """Return what sums float32 of so many bytes over the ranks."""

    def on(device: torch.device) -> Callable[[], object]:
        x = torch.zeros(num_bytes // 4, device=device)
        return lambda: dist.all_reduce(x)

    return on


def there_and_back(num_bytes: int) -> Callable[[torch.device], Callable[[], object]]:
    """Return what sends float32 of so many bytes to the other rank, which then sends as many back."""

    def on(device: torch.device) -> Callable[[], object]:
        x = torch.zeros(num_bytes // 4, device=device)

        def first() -> None:
            dist.send(x, 1)
            dist.recv(x, 1)

        def second() -> None:
            dist.recv(x, 0)
            dist.send(x, 0)

        return second if dist.get_rank() else first

    return on


def ddp_step(device: torch.device) -> Callable[[], object]:
    """Return a training step of a model whose gradients are averaged over the ranks."""
    torch.manual_seed(0)
    layers = [layer for _ in range(_LAYERS) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.ReLU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x: Tensor = torch.randn(_BATCH, _WIDTH).to(device)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


CASES = (
    Case("all_reduce, 16 B", all_reduce(16)),
    Case("all_reduce, 64 MiB", all_reduce(64 * _MIB)),
    Case("send and receive, 1 MiB", there_and_back(_MIB)),
    Case("send and receive, 64 MiB", there_and_back(64 * _MIB)),
    Case("DDP step", ddp_step),
)


def check_sums(device: torch.device) -> None:
    """Raise if a sum over the ranks is wrong: what does nothing is fast."""
    x = torch.full((1000,), float(dist.get_rank() + 1), device=device)
    dist.all_reduce(x)
    torch.testing.assert_close(x.cpu(), torch.full((1000,), 3.0))


def run_rank(rank: int, device_type: str, store: str, budget: Budget) -> list[Row]:
    """Be one of the ranks; return the rows, which are the same on all."""
    torch.set_num_threads(1)
    device = torch.device(device_type, rank)
    torch.get_device_module(device).set_device(device)
    backend = dist.Backend.default_device_backend_map[device_type]
    dist.init_process_group(
        f"cpu:gloo,{device_type}:{backend}", init_method=f"file://{store}", rank=rank, world_size=RANKS
    )
    cpu = torch.device("cpu")
    check_sums(device)
    rows = []
    for case in CASES:
        sides = Together(case.on(cpu), cpu), Together(case.on(device), device)
        rows.append(alternate(case.name, *sides, budget))
        if rank == 0:
            print(
                f"{case.name}: gloo {rows[-1].cpu_seconds * 1e6:.0f} us, {device_type} "
                f"{rows[-1].device_seconds * 1e6:.0f} us, ratio {rows[-1].ratio:.2f}",
                flush=True,
            )
    dist.destroy_process_group()
    return rows


def measure(device_type: str, budget: Budget) -> list[Row]:
    """Start the ranks, on a device each, and return their rows."""
    os.environ.setdefault("TORCH_LOOM_DEVICES", str(RANKS))
    # Without it, OpenMP's threads of both ranks wait for one another's cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(RANKS, mp_context=get_context("spawn")) as ranks,
    ):
        store = str(Path(folder, "store"))
        running = [ranks.submit(run_rank, rank, device_type, store, budget) for rank in range(RANKS)]
        rows, _ = (each.result() for each in running)
        return rows


def is_missed(row: Row) -> bool:
    """Return whether a case takes longer than it may."""
    if row.name in LIMITS_US:
        return row.device_seconds * 1e6 > LIMITS_US[row.name]
    return row.ratio > TARGETS[row.name]


def docs_body(rows: Sequence[Row]) -> str:
    """Return the section for docs/performance.md."""
    lines = [
        [
            row.name,
            f"{row.cpu_seconds * 1e6:.0f}",
            f"{row.device_seconds * 1e6:.0f}",
            f"{row.ratio:.2f}",
            f"{LIMITS_US[row.name]:.0f} us" if row.name in LIMITS_US else f"{TARGETS[row.name]}",
        ]
        for row in rows
    ]
    return (
        "Two ranks, each a process with one thread; gloo on tensors of the host and the devices' backend in "
        "turns. A run counts until its result is there for the host, on the slower rank: medians of "
        f"{FULL.rounds} rounds. A message goes there and back. The step is that of {_LAYERS} layers of "
        f"{_WIDTH:,} by {_WIDTH:,}, a batch of {_BATCH} rows a rank.\n\n"
        + markdown_table(["case", "gloo us", "loom us", "ratio", "at most"], lines)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    options = parser("Collectives of two ranks against gloo's.").parse_args(arguments)
    rows = measure(options.device, QUICK if options.quick else FULL)
    if options.json:
        write_json(options.json, {"command": COMMAND, "rows": [row.as_json() for row in rows]})
    if options.write_docs:
        write_docs("collectives", "Collectives", docs_body(rows), COMMAND)
    missed = [row.name for row in rows if is_missed(row)]
    for name in missed:
        print(f"missed: {name}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
