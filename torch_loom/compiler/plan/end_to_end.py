"""What a plan takes from the host and back: the chip's work, and what stands between two runs."""

from __future__ import annotations

from typing import Any

from torch_loom.chips.rates import rates
from torch_loom.chips.stacks import Run, reached
from torch_loom.compiler.plan.model import Plan
from torch_loom.compiler.target import Target


def end_to_end(plan: Plan, target: Target, batch: int) -> dict[str, Any]:
    """Return the parts of a run, in seconds, and the rate of many, in samples a second.

    They are of the chip's declared figures alone. A chip with one epoch keeps it, so that runs follow one
    another without a gap. With several, each starts anew for as many runs as the queues between them hold:
    its cores are started (``kernel_launch_ns``), and its pipeline of ops fills. Inputs and outputs cross the
    host's link (``host_link_gbps``), both ways at once, and the host issues a copy for each and the run
    itself (``host_issue_ns``).

    ``starts`` is how many epochs a run starts, on the chip that starts most. ``reached`` has the samples a
    second that vendors' stacks reach, by their names, of a plan of one chip (:mod:`torch_loom.chips.stacks`).

    Args:
        batch: samples of a run.
    """
    hz = target.clock_ghz * 1e9
    chip_rates = rates(target.chip)
    launch_seconds = chip_rates.launch_ns * 1e-9
    runs_of_epoch = min((queue.entries for queue in plan.queues if queue.kind == "epoch"), default=1)
    busy, gaps = [0.0] * plan.num_chips, [0.0] * plan.num_chips
    num_epochs = [0] * plan.num_chips
    for epoch in plan.epochs:
        busy[epoch.chip] += epoch.cycles / hz
        gaps[epoch.chip] += launch_seconds + epoch.fill_cycles / hz
        num_epochs[epoch.chip] += 1
    chips = [
        work + (gap / runs_of_epoch if number > 1 else 0.0)
        for work, gap, number in zip(busy, gaps, num_epochs, strict=True)
    ]
    moved = {
        kind: sum(queue.bytes for queue in plan.queues if queue.kind == kind) for kind in ("input", "output")
    }
    link = {kind: num_bytes / (chip_rates.link_bytes_per_ns * 1e9) for kind, num_bytes in moved.items()}
    num_copies = sum(queue.kind in moved for queue in plan.queues)
    issue_seconds = target.chip.host_issue_ns * 1e-9 * (num_copies + 1)
    host_seconds = max([*link.values(), issue_seconds])
    interval = max([*chips, host_seconds])
    starts = max((number for number in num_epochs if number > 1), default=0) / runs_of_epoch
    run = Run(batch, sum(busy), starts, host_seconds)
    return {
        "work_seconds": run.work_seconds,
        "starts": starts,
        "start_seconds": launch_seconds * len(plan.epochs),
        "fill_seconds": sum(epoch.fill_cycles for epoch in plan.epochs) / hz,
        "link_seconds": sum(link.values()),
        "issue_seconds": issue_seconds,
        "host_seconds": host_seconds,
        "latency_seconds": sum(busy) + sum(gaps) + sum(link.values()) + issue_seconds,
        "chip_seconds": max(chips, default=0.0),
        "interval_seconds": interval,
        "samples_per_second": batch / interval if interval else 0.0,
        "reached": reached(target.chip, run) if plan.num_chips == 1 else {},
    }
