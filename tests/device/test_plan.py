"""What the plan of a dry run says: memory by category, time, stacks; and models that do not fit here."""

from __future__ import annotations

import resource
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code

from torch_loom import _C, chips, config
from torch_loom.errors import ConfigurationError, DryRunError

MIB = 1 << 20
GIB = 1 << 30


def trained(size: int, steps: int = 2, batch: int = 16) -> nn.Module:
    model = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 8)).to("loom")
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(batch, size, device="loom")).square().mean().backward()
        optimizer.step()
    return model


def test_memory_is_counted_by_what_it_is_for() -> None:
    size = 1024
    with torch.loom.dry_run(chip="h200", devices=1) as plan:
        trained(size)
    parameters = 4 * (size * size + size) + 4 * (8 * size + 8)
    found = plan.memory_by_category()
    rounding = 5 * 512
    assert parameters <= found["parameters"] <= parameters + rounding
    assert parameters <= found["gradients"] <= parameters + rounding
    assert 2 * parameters <= found["optimizer state"] <= 2 * parameters + 4 * rounding
    # Of the forward's thread and of the backward's.
    assert found["workspace"] == 32 * MIB + 32 * MIB
    assert found["activations"] > 0
    in_use = sum(size for name, size in found.items() if name != "fragmentation")
    assert in_use == pytest.approx(plan.peak_memory_bytes(), rel=0.01)
    assert in_use + found["fragmentation"] == plan.peak_reserved_bytes()
    assert f"by device: {plan.peak_memory_bytes() / MIB:,.1f} MiB>" in repr(plan)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["object", "in place", "function"])
def test_compiled_modules_are_planned_whole(way: str) -> None:
    torch._dynamo.reset()  # what earlier tests compiled makes it give up "in place"

    def program() -> None:
        model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 8)).to("loom")
        run: Any = model
        if way == "object":
            run = torch.compile(model, fullgraph=True)
        elif way == "in place":
            model.compile(fullgraph=True)
        else:
            run = torch.compile(lambda x: model(x), fullgraph=True)
        optimizer = torch.optim.SGD(model.parameters())
        run(torch.randn(16, 64, device="loom")).square().mean().backward()
        optimizer.step()

    with torch.loom.dry_run(chip="h200", devices=1) as plan:
        program()
    assert any("fused" in each.name for each in plan.ops()), "Dynamo broke the graph"
    assert plan.memory_by_category()["parameters"] >= 4 * (64 * 256 + 256 + 256 * 8 + 8)


@pytest.mark.slow
def test_constants_of_compiled_code_have_their_values() -> None:
    # What is known when the code is compiled is not read from a device that computes nothing.
    def scaled(x: torch.Tensor) -> torch.Tensor:
        three = torch.full((8,), 1.5, device=x.device) * 2
        return x * three + (three - 3)

    with torch.loom.dry_run(devices=1), warnings.catch_warnings():
        warnings.filterwarnings("error", message="reads a value")
        y, code = run_and_get_code(torch.compile(scaled), torch.ones(4, 8, device="loom"))
    assert y.shape == (4, 8)
    assert "static_cast<float>(3.0)" in code[0]
    assert "static_cast<float>(0.0)" not in code[0]


def test_the_peak_has_the_line_that_made_it() -> None:
    with torch.loom.dry_run(chip="h200", devices=1) as plan:
        x = torch.ones(1 << 20, device="loom")
        y = x + 1  # the peak
        del x, y
        torch.ones(16, device="loom")
    lines = [frame for frame in plan.peak_stack() if frame.file == __file__]
    assert lines[0].function.endswith("test_the_peak_has_the_line_that_made_it")
    with open(__file__, encoding="utf-8") as source:
        assert "# the peak" in source.read().splitlines()[lines[0].line - 1]


@pytest.mark.long
def test_time_is_that_of_steps_and_ops() -> None:
    def planned(chip: str) -> tuple[float, ...]:
        with torch.loom.dry_run(chip=chip, devices=1) as plan:
            trained(2048, steps=3)
        assert len(plan.step_seconds) == 3
        assert sum(plan.step_seconds) <= plan.seconds + 1e-12
        assert len(plan.step_busy_seconds) == 3
        for busy, step in zip(plan.step_busy_seconds, plan.step_seconds, strict=True):
            assert 0 < busy <= step
        assert sum(plan.seconds_by_family().values()) == pytest.approx(sum(op.seconds for op in plan.ops()))
        names = {op.name for op in plan.ops()}
        assert {"aten::addmm", "aten::mm", "aten::relu"} <= names
        assert 0 < plan.utilisation() <= 1
        spans = list(plan.spans())
        assert max(span.ended for span in spans) <= plan.seconds + 1e-9
        return plan.step_seconds

    first = planned("h200")
    assert first == planned("h200")
    assert planned("grayskull")[-1] > first[-1]


@pytest.mark.long
def test_the_host_takes_what_the_setting_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds() -> float:
        with torch.loom.dry_run(chip="h100", devices=1):
            x = torch.ones(8, device="loom")
            began = torch.loom.clock()
            for _ in range(100):
                x.add_(1)
            torch.loom.synchronize()
            return float(torch.loom.clock()) - began

    usual = seconds()
    monkeypatch.setenv("TORCH_LOOM_HOST_ISSUE", "110.5")
    assert seconds() == pytest.approx(100 * 110.5e-6, rel=0.05)
    with config.exported({"host_issue": "0"}):
        assert seconds() < usual / 5
    assert seconds() > usual
    monkeypatch.setenv("TORCH_LOOM_HOST_ISSUE", "-1")
    with pytest.raises(ConfigurationError, match="microseconds, 0 to 1000000"):
        seconds()
    monkeypatch.delenv("TORCH_LOOM_HOST_ISSUE")
    assert seconds() == usual


def test_a_dry_run_leaves_the_programs_clock_alone() -> None:
    torch.loom.init()
    began = torch.loom.clock()
    with torch.loom.dry_run(chip="h200", devices=1):
        before = torch.loom.clock()
        torch.ones(64, device="loom").add_(1)
        inside = torch.loom.clock() - before
        assert before == 0
        assert inside == pytest.approx(2e-9 * chips.load("h200").host_issue_ns, rel=0.5)
    ended = torch.loom.clock()
    assert ended == began if _C.is_time_simulated() else ended > began + inside


def test_running_out_of_memory_is_told() -> None:
    with (
        torch.loom.dry_run(chip="h200", devices=1, memory="1GiB") as plan,
        pytest.raises(torch.OutOfMemoryError),
    ):
        trained(32_768)
    assert plan.out_of_memory is None
    with (
        pytest.raises(torch.OutOfMemoryError),
        torch.loom.dry_run(chip="h200", devices=1, memory="1GiB") as plan,
    ):
        trained(32_768)
    assert plan.out_of_memory is not None
    assert "1024.00 MiB" in plan.out_of_memory or "1.00 GiB" in plan.out_of_memory


def test_values_are_zero_and_a_warning_names_the_line() -> None:
    with torch.loom.dry_run(chip="h200", devices=1):
        x = torch.full((3,), 7.0, device="loom")

        def read() -> float:
            return float(x.sum())

        line = read.__code__.co_firstlineno + 1
        with pytest.warns(UserWarning, match="reads a value") as told:
            assert read() == 0
        assert [(warning.filename, warning.lineno) for warning in told] == [(__file__, line)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert read() == 0  # told once
        with pytest.warns(UserWarning, match="reads a value"):
            assert x.tolist() == [0.0] * 3
        with pytest.warns(UserWarning, match="reads a value"):
            assert not bool((x > 0).any())


def test_models_larger_than_this_machine_cost_nothing() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.loom.dry_run(chip="h200", devices=1) as plan:
        host = [nn.Linear(16_384, 65_536, dtype=torch.bfloat16) for _ in range(16)]
        assert not host[0].weight[:64].any()
        model = nn.Sequential(*host).to("loom")
        half = nn.Linear(16_384, 65_536).half()
        assert half.weight.dtype == torch.float16
        assert half.weight.is_leaf
        assert half.weight.requires_grad
    assert plan.peak_memory_bytes() >= 16 * 2 * GIB
    del model, half, host
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB: a GiB


def test_what_is_small_is_made_as_ever() -> None:
    with torch.loom.dry_run(chip="h200", devices=1):
        torch.manual_seed(0)
        first = nn.Linear(8, 8).weight.detach().clone()
        assert first.abs().sum() > 0
        large = torch.randn(1 << 19)
        assert large.shape == (1 << 19,)
        assert not large.any()
        assert torch.ones(4).sum() == 4
        assert (large + 1).sum() == 1 << 19
    assert torch.ones(1 << 19).sum() == 1 << 19


def test_libraries_take_a_workspace_for_each_thread_and_stream() -> None:
    with torch.loom.dry_run(chip="h200", devices=1) as plan:
        x = torch.empty(64, 64, device="loom", requires_grad=True)
        product = x @ x
        x @ x
        torch.empty(1 << 27, device="loom")
        assert plan.memory_by_category()["workspace"] == 32 * MIB
        nn.functional.linear(x, x, x[0])  # in the same memory
        torch.empty(1 << 28, device="loom")
        assert plan.memory_by_category()["workspace"] == 32 * MIB
        product.sum().backward()
        torch.empty(1 << 29, device="loom")
        assert plan.memory_by_category()["workspace"] == 64 * MIB
        with torch.loom.stream(torch.loom.Stream()):
            x @ x
        torch.empty(1 << 30, device="loom")
        assert plan.memory_by_category()["workspace"] == 96 * MIB


def test_checks_pass_and_other_values_are_zero() -> None:
    with warnings.catch_warnings(), torch.loom.dry_run(chip="h200", devices=1):
        warnings.simplefilter("ignore")
        x = torch.empty(8, device="loom")
        assert (x == 0).all()
        assert torch.isfinite(x).all(dim=0)
        assert not torch.isnan(x).any()
        assert x.sum().item() == 0
        check = (x == 0).all()
        check.logical_not_()
        assert not check


def test_attention_fuses_rows_of_consecutive_elements_only() -> None:
    def ops(mask: torch.Tensor) -> set[str]:
        with torch.loom.dry_run(chip="h200", devices=1) as plan:
            q = torch.empty(2, 4, 64, 32, device="loom")
            nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask.to("loom"))
        return {op.name for op in plan.ops()}

    fused = "aten::_scaled_dot_product_fused_attention_overrideable"
    rows = torch.zeros(1, 4, 64, 64)
    assert fused in ops(rows)
    columns = ops(rows.transpose(2, 3))
    assert fused not in columns
    assert "aten::bmm" in columns


def test_state_of_a_step_that_runs_out_of_memory_is_state() -> None:
    with (
        pytest.raises(torch.OutOfMemoryError),
        torch.loom.dry_run(chip="h200", devices=1, memory="300MiB") as plan,
    ):
        trained(4096)  # 64 MiB of parameters, as much of gradients, twice as much of state
    found = plan.memory_by_category()
    assert found["optimizer state"] >= 60 * MIB
    assert found["activations"] < 20 * MIB


def test_sums_over_many_rows_need_memory_for_their_parts() -> None:
    def peak(rows: int, dim: int) -> int:
        with torch.loom.dry_run(chip="h200", devices=1) as plan:
            torch.empty(rows, 3072, device="loom").sum(dim)
        return plan.peak_memory_bytes() - rows * 3072 * 4

    # As in allocator traces of an H200, which splits 1576 rows over 25 blocks.
    parts_bytes = 3072 * 4 * 32 * 4 * 25
    assert parts_bytes <= peak(1576, 0) < parts_bytes + MIB
    assert peak(16, 0) < MIB
    assert peak(1576, 1) < MIB


def test_collectives_of_a_planned_group_take_time() -> None:
    with torch.loom.dry_run(chip="h200", devices=1) as plan:
        assert plan.world_size == 1
        plan.world_size = 8
        assert (torch.distributed.get_world_size(), torch.distributed.get_rank()) == (8, 0)
        x = torch.empty(1 << 20, device="loom")
        torch.distributed.all_reduce(x)
        plan.world_size = 2
        torch.distributed.all_reduce(x)
        with pytest.raises(ValueError, match="must be 1 to 65536, got 0"):
            plan.world_size = 0
    assert not torch.distributed.is_initialized()
    (op,) = (op for op in plan.ops() if op.family == "collective")
    assert (op.name, op.calls) == ("c10d::all_reduce", 2)
    # A ring moves 2(n - 1)/n of the bytes over 18 links of 25 GB/s, and takes time to begin.
    moved = (1 << 22) * (14 / 8 + 2 / 2)
    assert moved / 450e9 < op.seconds < moved / 450e9 + 200e-6
    with pytest.raises(DryRunError, match="has ended"):
        plan.world_size = 4


def test_a_fake_group_costs_what_a_planned_one_costs() -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    seconds = []
    for is_fake in (False, True):
        with torch.loom.dry_run(devices=1) as plan:
            if is_fake:
                torch.distributed.init_process_group("fake", store=FakeStore(), rank=5, world_size=16)
            else:
                plan.world_size = 16
            torch.distributed.all_reduce(torch.empty(1 << 20, device="loom"))
            if is_fake:
                assert torch.distributed.get_rank() == 5
                torch.distributed.destroy_process_group()
        seconds.append(plan.seconds_by_family()["collective"])
    assert seconds[0] == seconds[1] > 0
