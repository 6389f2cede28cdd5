"""torch.profiler on the devices: when a profile begins and ends, and what it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile, schedule

from tests.conftest import PythonRunner
from tests.device.profiles import ON_DEVICE, average, kernels, names, of, trace
from torch_loom.device._core.device_index import DEVICE_TYPE

PROGRAMS = Path(__file__).parent / "programs" / "profiler_sessions"


@pytest.mark.exercises("torch.cuda.profiler.start", "torch.cuda.profiler.stop", "torch.cuda.profiler.profile")
def test_gate_of_the_profiler() -> None:
    torch.loom.profiler.stop()  # no profile runs: nothing is stopped
    x = torch.ones(8, device=DEVICE_TYPE)
    with profile() as prof:
        x.sin()
        torch.loom.profiler.stop()
        x.cos()
        with torch.loom.profiler.profile():
            x.tan()
        x.cosh()
        torch.loom.profiler.start()
        x.tanh()
        torch.loom.profiler.stop()
    assert kernels(prof) == [f"{DEVICE_TYPE}::{name}" for name in ("sin", "tan", "tanh")]
    assert average(prof, "aten::cos").count == 1, "ops are kept"
    with profile() as prof:
        x.cos()
        with pytest.raises(ZeroDivisionError), torch.loom.profiler.profile():
            _ = 1 / 0
        x.sin()
    assert kernels(prof) == [f"{DEVICE_TYPE}::cos"]


def test_schedule() -> None:
    traces: list[list[str]] = []
    x = torch.ones(8, device=DEVICE_TYPE)
    steps = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=steps, on_trace_ready=lambda prof: traces.append(kernels(prof))) as prof:
        for step in range(9):
            x.pow(step + 2)
            prof.step()
    assert prof.current_action == ProfilerAction.NONE
    assert traces == [[f"{DEVICE_TYPE}::pow"] * 2] * 2


def test_profiles_one_after_the_other() -> None:
    x = torch.ones(8, device=DEVICE_TYPE)
    with profile() as first:
        x.sin()
    x.cos()
    with profile() as empty:
        pass
    with profile() as third:
        x.tan()
    assert [kernels(prof) for prof in (first, empty, third)] == [
        [f"{DEVICE_TYPE}::sin"],
        [],
        [f"{DEVICE_TYPE}::tan"],
    ]


def test_only_what_was_asked_for() -> None:
    x = torch.ones(8, device=DEVICE_TYPE)
    with profile(activities=[ProfilerActivity.CPU]) as host:
        x.sin()
    assert [of(trace(host), kind) for kind in ("kernel", "privateuse1_runtime", "cuda_sync")] == [[], [], []]
    assert "aten::sin" in {event.name for event in host.events()}
    with profile(activities=[ON_DEVICE]) as device:
        x.sin()
    events = trace(device)
    assert names(of(events, "kernel")) == [f"{DEVICE_TYPE}::sin"]
    assert of(events, "cpu_op") == []
    with profile(activities=[{ON_DEVICE: ["GPU_MEMCPY"]}]) as copies:
        x.sin().cpu()
    events = trace(copies)
    assert of(events, "kernel") == []
    assert len(of(events, "gpu_memcpy")) == 1


def test_exceptions() -> None:
    x = torch.ones(8, device=DEVICE_TYPE)
    prof = profile()
    with pytest.raises(RuntimeError, match="size"), prof:  # noqa: PT012
        x.sin()
        x + torch.ones(3, device=DEVICE_TYPE)
    assert f"{DEVICE_TYPE}::sin" in kernels(prof)
    assert not torch.autograd._profiler_enabled()


def test_failure_that_the_end_of_a_profile_finds() -> None:
    """It is raised there, and the profile has ended all the same."""
    side = torch.loom.Stream()
    values = torch.tensor([0.0, 7.0], device=DEVICE_TYPE)
    indices = torch.tensor([0, 7], device=DEVICE_TYPE)
    with side:
        values.index_select(0, indices.clamp(max=1))
    side.synchronize()
    prof = profile()
    with pytest.raises((IndexError, RuntimeError), match="index"), prof:  # noqa: PT012
        with side:
            values.index_select(0, indices)
        values.sin()
    assert not torch.autograd._profiler_enabled()
    with profile() as after:
        values.cos()
    assert kernels(after) == [f"{DEVICE_TYPE}::cos"]


def test_aborted_profile() -> None:
    """One that was prepared and never ended keeps nothing from the next."""
    x = torch.ones(8, device=DEVICE_TYPE)
    abandoned = profile()
    abandoned.prepare_trace()
    x.sin()
    with profile() as prof:
        x.cos()
    assert kernels(prof) == [f"{DEVICE_TYPE}::cos"]


def test_ids_are_those_of_no_earlier_profile() -> None:
    x, seen = torch.ones(8, device=DEVICE_TYPE), set()
    for _ in range(3):
        with profile() as prof:
            x.sin()
            torch.loom.synchronize()
        ids = {event.correlation_id() for event in prof.profiler.kineto_results.events()} - {0}
        assert ids
        assert not ids & seen
        seen |= ids


@pytest.mark.long
@pytest.mark.parametrize("clock", ["simulated", "wall"])
def test_the_rows_of_the_device_begin_with_the_profile(clock: str, fork_python: PythonRunner) -> None:
    """However much longer than the device the host has worked before: a simulated clock is behind it then."""
    fork_python(PROGRAMS / "the_rows_of_the_device_begin_with_the_profile.py", {"TORCH_LOOM_CLOCK": clock})
