"""What stands between two runs of a plan: starts and fills of epochs, the host's link, its calls."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from torch_loom.chips import load
from torch_loom.compiler import compile_module

SAMPLES, ROWS, WIDTH = 4, 64, 128


def planned(chip_changes: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))).eval()
    chip = dataclasses.replace(load("wormhole_b0"), **(chip_changes or {}))
    made = compile_module(net, [torch.ones(SAMPLES, ROWS, WIDTH)], chip=chip, cache=False, **options)
    plan: dict[str, Any] = made.plan
    assert made.end_to_end_samples_per_second == plan["end_to_end"]["samples_per_second"]
    return plan


def test_a_chip_that_keeps_its_epoch_has_no_gap_between_runs() -> None:
    plan = planned()
    assert len(plan["epochs"]) == 1
    whole, totals = plan["end_to_end"], plan["totals"]
    parts = [totals["interval_seconds"], whole["issue_seconds"], whole["link_seconds"]]
    assert whole["interval_seconds"] <= max(parts)
    assert whole["interval_seconds"] >= totals["interval_seconds"]
    assert whole["latency_seconds"] == pytest.approx(
        totals["latency_seconds"]
        + sum(whole[f"{part}_seconds"] for part in ("start", "fill", "link", "issue"))
    )


def test_epochs_fill_sample_by_sample() -> None:
    plan = planned(balancer_policy="MinimizeGrid")
    (epoch,) = plan["epochs"]
    cycles = [op["cycles"] for op in epoch["ops"]]
    assert len(cycles) == 4
    # A row of ops, each handing on its result sample by sample.
    assert epoch["fill_cycles"] == pytest.approx((sum(cycles) - max(cycles)) / SAMPLES)


def test_epochs_that_change_are_started_and_filled_for_what_their_queues_hold() -> None:
    slow, slower = (
        planned(
            {"kernel_launch_ns": ns, "host_issue_ns": 0.0, "host_link_gbps": 1e3},
            balancer_policy="SingleOpPerEpoch",
        )
        for ns in (1000.0, 5000.0)
    )
    assert len(slow["epochs"]) == 4
    assert all(epoch["fill_cycles"] == 0 for epoch in slow["epochs"])
    starts = [plan["end_to_end"]["start_seconds"] for plan in (slow, slower)]
    assert starts == pytest.approx([4e-6, 20e-6])
    entries = min(queue["entries"] for queue in slow["queues"] if queue["kind"] == "epoch")
    gaps = [
        plan["end_to_end"]["interval_seconds"] - plan["totals"]["interval_seconds"] for plan in (slow, slower)
    ]
    assert gaps == pytest.approx([4e-6 / entries, 20e-6 / entries])


def test_the_hosts_link_and_its_calls() -> None:
    num_bytes = SAMPLES * ROWS * WIDTH * 4
    link = {gbps: planned({"host_link_gbps": gbps})["end_to_end"]["link_seconds"] for gbps in (1.0, 4.0)}
    assert link[1.0] == pytest.approx(2 * num_bytes / 1e9)
    assert link[4.0] == pytest.approx(link[1.0] / 4)
    issued = planned({"host_issue_ns": 1e6})["end_to_end"]
    assert issued["issue_seconds"] == pytest.approx(3e-3)  # an input, an output, the run
    assert issued["samples_per_second"] == pytest.approx(SAMPLES / 3e-3)
