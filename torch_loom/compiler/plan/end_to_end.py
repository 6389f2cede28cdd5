"""What a plan takes from the host and back: the chip's work, and what stands between two runs."""

from __future__ import annotations

from typing import Any

from torch_loom.chips.rates import rates
from torch_loom.chips.stacks import stacks
from torch_loom.compiler.plan.model import Plan
from torch_loom.compiler.target import Target


def end_to_end(plan: Plan, target: Target, batch: int) -> dict[str, Any]:
    """Return the parts of a run, in seconds, and the rate of many: of the chip's declared figures alone.

    A chip with one epoch keeps it, so that runs follow one another without a gap. With several, each starts
    anew for as many runs as the queues between them hold: its cores are started (``kernel_launch_ns``), and
    its pipeline of ops fills. Inputs and outputs cross the host's link (``host_link_gbps``), both ways at
    once, and the host issues a copy for each and the run itself (``host_issue_ns``). What a vendor's stack
    reaches of one chip, where it is known, stands by the name of the stack under ``reached``.

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
    interval = max([*chips, *link.values(), issue_seconds])
    starts = max((number for number in num_epochs if number > 1), default=0) / runs_of_epoch
    under = {name: one.seconds(target.chip.name, interval, starts, batch) for name, one in stacks().items()}
    return {
        "starts": starts,
        "start_seconds": launch_seconds * len(plan.epochs),
        "fill_seconds": sum(epoch.fill_cycles for epoch in plan.epochs) / hz,
        "link_seconds": sum(link.values()),
        "issue_seconds": issue_seconds,
        "latency_seconds": sum(busy) + sum(gaps) + sum(link.values()) + issue_seconds,
        "interval_seconds": interval,
        "samples_per_second": batch / interval if interval else 0.0,
        "reached": {name: batch / each for name, each in under.items() if each and plan.num_chips == 1},
    }
