"""What stands between two runs of a plan: starts and fills of epochs, the host's link, its calls."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torch_loom.chips import load
from torch_loom.chips.stacks import stacks
from torch_loom.compiler import compile_module
from torch_loom.errors import ImageError

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


class _Attention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x)


@pytest.mark.long
@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (_Attention(), (4, 4, 128, 64)),
        (nn.Linear(1024, 1024), (2048, 1024)),
        (nn.Conv2d(64, 64, 3), (4, 64, 28, 28)),
    ],
)
def test_a_narrower_format_or_fewer_passes_are_never_slower(net: nn.Module, shape: tuple[int, ...]) -> None:
    def seconds(format_name: str, fidelity: str) -> float:
        how: dict[str, Any] = {"default_df_override": format_name, "math_fidelity": fidelity}
        made = compile_module(net.eval(), [torch.ones(shape)], chip="wormhole_b0", cache=False, **how)
        return float(made.latency_seconds)

    formats, fidelities = ("Float16_b", "Bfp8_b", "Bfp4_b"), ("HiFi4", "HiFi2", "LoFi")
    table = [[seconds(one, passes) for passes in fidelities] for one in formats]
    for row in [*table, *zip(*table, strict=True)]:
        assert list(row) == sorted(row, reverse=True)
    assert table[0][0] > table[0][-1]


def test_layouts_of_images_cost_nothing_on_tiles() -> None:
    # A GPU's library would turn the image of the second, whose window is larger.
    net = nn.Conv2d(256, 256, 1, bias=False), nn.Conv2d(64, 256, 2, stride=2, bias=False)
    x = torch.ones(4, 256, 16, 16), torch.ones(4, 64, 32, 32)
    how: dict[str, Any] = {"default_df_override": "Bfp8_b", "math_fidelity": "HiFi2", "cache": False}
    one, other = (
        compile_module(conv.eval(), [image], chip="wormhole_b0", **how).plan["epochs"][0]["ops"][0]
        for conv, image in zip(net, x, strict=True)
    )
    assert other["cycles"] == pytest.approx(one["cycles"], rel=0.1)


@pytest.mark.long
def test_layouts_of_images_cost_a_gpu_what_its_libraries_take() -> None:
    conv = nn.Conv2d(64, 64, 3, bias=False, dtype=torch.bfloat16).eval()
    x = torch.ones(4, 64, 56, 56, dtype=torch.bfloat16)
    turned, as_it_lies = (
        compile_module(conv, [image], chip="h100", cache=False).latency_seconds
        for image in (x, x.to(memory_format=torch.channels_last))
    )
    assert turned > 1.2 * as_it_lies


def test_plans_take_the_host_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = planned()["end_to_end"]["issue_seconds"]
    monkeypatch.setenv("TORCH_LOOM_HOST_ISSUE", "1000")
    assert planned()["end_to_end"]["issue_seconds"] == pytest.approx(
        usual * 1e6 / load("wormhole_b0").host_issue_ns
    )


def test_an_empty_batch_is_planned() -> None:
    made = compile_module(nn.Linear(8, 4), [torch.ones(0, 3, 8)], chip="wormhole_b0", cache=False)
    assert made(torch.ones(0, 3, 8)).shape == (0, 3, 4)


def test_epochs_fill_sample_by_sample() -> None:
    plan = planned(balancer_policy="MinimizeGrid")
    (epoch,) = plan["epochs"]
    cycles = [op["cycles"] for op in epoch["ops"]]
    assert len(cycles) == 4
    # A row of ops, each handing on its result sample by sample.
    assert epoch["fill_cycles"] == pytest.approx((sum(cycles) - max(cycles)) / SAMPLES)


@pytest.mark.long
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


@pytest.mark.long
def test_the_hosts_link_and_its_calls() -> None:
    num_bytes = SAMPLES * ROWS * WIDTH * 4
    link = {gbps: planned({"host_link_gbps": gbps})["end_to_end"]["link_seconds"] for gbps in (1.0, 4.0)}
    assert link[1.0] == pytest.approx(2 * num_bytes / 1e9)
    assert link[4.0] == pytest.approx(link[1.0] / 4)
    issued = planned({"host_issue_ns": 1e6})["end_to_end"]
    assert issued["issue_seconds"] == pytest.approx(3e-3)  # an input, an output, the run
    assert issued["samples_per_second"] == pytest.approx(SAMPLES / 3e-3)


def test_a_stack_reaches_less_of_one_chip_and_epochs_that_start_cost_it() -> None:
    known = stacks()["PyBuda"]
    factor, sample_seconds = known.chips["wormhole_b0"]
    for plan, starts in ((planned(), 0), (planned(balancer_policy="SingleOpPerEpoch"), 4)):
        whole = plan["end_to_end"]
        assert whole["starts"] == starts
        epochs = starts * (known.epoch_seconds + SAMPLES * sample_seconds)
        seconds = max(factor * whole["work_seconds"] + epochs, whole["host_seconds"])
        assert whole["reached"] == {"PyBuda": pytest.approx(SAMPLES / seconds)}
    assert planned(device_config="wh_n300")["end_to_end"]["reached"] == {}


@pytest.mark.parametrize("change", [{"name": "of one's own"}, {"clock_mhz": 4000, "dram_gbps": 4000.0}])
def test_what_a_stack_reaches_is_not_known_of_changed_chips(change: dict[str, Any]) -> None:
    assert planned(change)["end_to_end"]["reached"] == {}


def test_a_run_that_waits_for_the_host_is_not_slowed_by_kernels() -> None:
    whole = planned({"host_issue_ns": 1e9})["end_to_end"]
    assert whole["reached"] == {"PyBuda": pytest.approx(whole["samples_per_second"])}


def test_outputs_whose_folder_cannot_be_made_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ImageError, match="file: the folder of outputs cannot be made"):
        planned(backend_output_dir=str(tmp_path / "file"))
