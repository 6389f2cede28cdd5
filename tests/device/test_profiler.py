"""torch.profiler on the devices: what stands in a trace, that it is what ran, and who is charged for it."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from tests.device.profiles import ON_DEVICE, average, kernels, mm, names, of, times_ns, trace
from torch_loom.device._core.device_index import DEVICE_TYPE

PROGRAMS = Path(__file__).parent / "programs" / "profiler"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner
    from tests.gate import Gate


def test_activity() -> None:
    assert ProfilerActivity.PrivateUse1 == ON_DEVICE
    assert torch.profiler.supported_activities() == {ProfilerActivity.CPU, ON_DEVICE}


def test_rows_of_work() -> None:
    """Kernels and copies: what they are, where they ran, how many bytes, and which call issued them."""
    host, pinned = torch.ones(1000), torch.ones(500).pin_memory()
    side = torch.loom.Stream()
    mm(side)
    side.synchronize()
    # All that there is, when nothing is said.
    with profile() as prof:
        on_device = host.to(DEVICE_TYPE)
        pinned.to(DEVICE_TYPE)
        on_device.clone()
        on_device.cpu()
        torch.zeros(300, device=DEVICE_TYPE)
        mm(side)
    events = trace(prof)
    copies = {event["name"]: event["args"]["bytes"] for event in of(events, "gpu_memcpy")}
    assert copies["Memcpy HtoD (Pageable -> Device)"] == 4000
    assert copies["Memcpy HtoD (Pinned -> Device)"] == 2000
    assert copies["Memcpy DtoH (Device -> Pageable)"] == 4000
    work = [event for kind in ("kernel", "gpu_memcpy", "gpu_memset") for event in of(events, kind)]
    [product] = [event for event in work if event["name"] == f"{DEVICE_TYPE}::mm"]
    assert (product["pid"], product["tid"]) == (torch.loom.current_device(), side.stream_id)
    assert (product["args"]["device"], product["args"]["stream"]) == (product["pid"], product["tid"])
    # Each has one call on the host, an arrow from there, and the op that it is part of.
    calls = {event["args"]["correlation"]: event for event in of(events, "privateuse1_runtime")}
    ops = {event["args"]["External id"]: event["name"] for event in of(events, "cpu_op")}
    arrows = of(events, "ac2g")
    for event in work:
        call = calls[event["args"]["correlation"]]
        assert call["name"] in {
            f"{DEVICE_TYPE}{name}" for name in ("LaunchKernel", "MemcpyAsync", "MemsetAsync")
        }
        assert call["ts"] <= event["ts"]
        assert call["args"]["External id"] == event["args"]["External id"]
        assert event["args"]["External id"] in ops
        [start] = [a for a in arrows if a["ph"] == "s" and a["id"] == call["args"]["correlation"]]
        [end] = [a for a in arrows if a["ph"] == "f" and a["id"] == start["id"]]
        assert (start["pid"], start["tid"], start["ts"]) == (call["pid"], call["tid"], call["ts"])
        assert (end["pid"], end["tid"], end["ts"]) == (event["pid"], event["tid"], event["ts"])
    assert ops[product["args"]["External id"]] == "aten::mm"
    labels = [event["args"] for event in events if event["name"] == "process_name"]
    assert {"name": f"{DEVICE_TYPE}:0"} in labels
    threads = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert "stream 0 (default)" in threads
    assert f"stream {side.stream_id}" in threads


def test_fills() -> None:
    with profile() as prof:
        x = torch.zeros(4, 64, device=DEVICE_TYPE)
        x.zero_()
        x[:, ::2].zero_()  # not in one piece: a kernel
        x.fill_(1)  # not a byte over and over: a kernel
    fills = of(trace(prof), "gpu_memset")
    assert [(fill["name"], fill["args"]["bytes"]) for fill in fills] == [("Memset (Device)", 1024)] * 2
    assert kernels(prof) == [f"{DEVICE_TYPE}::zero_", f"{DEVICE_TYPE}::fill_"]
    calls = {event["args"]["correlation"]: event["name"] for event in of(trace(prof), "privateuse1_runtime")}
    assert {calls[fill["args"]["correlation"]] for fill in fills} == {f"{DEVICE_TYPE}MemsetAsync"}


@pytest.mark.usefixtures("wall_clock")
def test_time_is_charged_to_ops() -> None:
    x = torch.ones(128, 128, device=DEVICE_TYPE)
    x @ x
    torch.loom.synchronize()
    start = time.perf_counter_ns()
    with profile(activities=[ProfilerActivity.CPU, ON_DEVICE]) as prof:
        for _ in range(3):
            torch.mm(x, x)
        torch.linalg.norm(x)
    wall_us = (time.perf_counter_ns() - start) / 1000
    op = average(prof, "aten::mm")
    [kernel] = [a for a in prof.key_averages() if a.key == f"{DEVICE_TYPE}::mm"]
    assert kernel.device_type == DeviceType.PrivateUse1
    assert op.count == kernel.count == 3
    assert 0 < op.self_device_time_total <= op.device_time_total
    assert op.device_time_total == pytest.approx(kernel.self_device_time_total)
    # On one stream nothing overlaps; calls of ops are charged with what their inner ops launch.
    device_us = sum(a.self_device_time_total for a in prof.key_averages() if a.device_type != DeviceType.CPU)
    assert 0 < device_us <= wall_us
    assert average(prof, "aten::linalg_vector_norm").device_time_total > 0
    # A kernel that runs in place lies within its call, and that within its op.
    for inner, outer in (
        (f"{DEVICE_TYPE}::mm", f"{DEVICE_TYPE}LaunchKernel"),
        (f"{DEVICE_TYPE}::mm", "aten::mm"),
    ):
        for begin, end in times_ns(prof, inner):
            assert any(a <= begin + 5000 and end <= b + 5000 for a, b in times_ns(prof, outer))
    table = prof.key_averages().table(sort_by="self_device_time_total", row_limit=5)
    assert f"Self {DEVICE_TYPE.upper()}" in table
    assert f"Self {DEVICE_TYPE.upper()} time total" in table
    # As with "cuda" for "loom".
    assert prof.key_averages().table(sort_by=f"self_{DEVICE_TYPE}_time_total", row_limit=5) == table
    norm = average(prof, "aten::linalg_vector_norm")
    assert getattr(norm, f"{DEVICE_TYPE}_time_total") == norm.device_time_total


@pytest.mark.usefixtures("wall_clock")
def test_a_kernel_stands_where_it_ran(gate: Gate) -> None:
    """On a stream with a worker: not when it was issued, but when the stream came to it."""
    side = torch.loom.Stream()
    x = torch.ones(32, 32, device=DEVICE_TYPE)
    with side:
        x @ x
    side.synchronize()
    with profile() as prof:
        gate.hold(side)
        with side:
            x @ x
        opened_ns = time.time_ns()
        gate.open()
        side.synchronize()
        finished_ns = time.time_ns()
    [(began, ended)] = times_ns(prof, f"{DEVICE_TYPE}::mm")
    assert opened_ns <= began <= ended <= finished_ns
    held = times_ns(prof, f"{DEVICE_TYPE}::special_bessel_j1")[-1]
    assert opened_ns < held[1] <= began
    [(op_began, op_ended)] = times_ns(prof, "aten::mm")
    assert op_began <= op_ended < opened_ns, "the op itself was over long before"
    assert average(prof, "aten::mm").self_device_time_total > 0


def test_synchronisations(gate: Gate) -> None:
    side = torch.loom.Stream()
    with profile() as prof:
        gate.hold(side)
        event = side.record_event()
        torch.loom.current_stream().wait_event(event)
        gate.open()
        event.synchronize()
        side.synchronize()
        torch.loom.synchronize()
    events = trace(prof)
    found = names(of(events, "cuda_sync"))
    assert {"Stream Wait Event", "Event Sync", "Stream Sync", "Device Sync"} <= set(found)
    calls = names(of(events, "privateuse1_runtime"))
    for name in (
        "EventRecord",
        "StreamWaitEvent",
        "EventSynchronize",
        "StreamSynchronize",
        "DeviceSynchronize",
    ):
        assert f"{DEVICE_TYPE}{name}" in calls
    # The default stream had nothing else to do than to wait until the op was through.
    [wait] = [e for e in of(events, "cuda_sync") if e["name"] == "Stream Wait Event"]
    held = [e for e in of(events, "kernel") if "bessel" in e["name"]][-1]
    assert wait["tid"] == 0
    assert wait["ts"] + wait["dur"] == pytest.approx(held["ts"] + held["dur"], abs=0.01)
    # Waiting is no work: tables leave it out.
    assert not {"Stream Wait Event", "Event Sync", "Stream Sync"} & {a.key for a in prof.key_averages()}


def test_graph_replays() -> None:
    x = torch.ones(32, 32, device=DEVICE_TYPE)
    y = torch.empty(32, 32, device=DEVICE_TYPE)
    graph = torch.loom.CUDAGraph() if hasattr(torch.loom, "CUDAGraph") else torch.loom.LoomGraph()
    with profile() as captured, torch.loom.graph(graph):
        z = x @ x
        y.copy_(z)
    assert f"{DEVICE_TYPE}::mm" not in kernels(captured), "nothing runs while it is captured"
    with profile() as prof:
        with record_function("replays"):
            graph.replay()
            graph.replay()
        torch.loom.synchronize()
    events = trace(prof)
    products = [e for e in of(events, "kernel") if e["name"] == f"{DEVICE_TYPE}::mm"]
    assert len(products) == 2
    assert names(of(events, "gpu_memcpy")) == ["Memcpy DtoD (Device -> Device)"] * 2
    launches = [e for e in of(events, "privateuse1_runtime") if e["name"] == f"{DEVICE_TYPE}GraphLaunch"]
    assert [e["args"]["correlation"] for e in products] == [e["args"]["correlation"] for e in launches]
    assert len(names(of(events, "gpu_user_annotation"))) == 1


def test_memory() -> None:
    torch.loom.empty_cache()
    with profile(profile_memory=True) as prof:
        x = torch.empty(1024, 1024, device=DEVICE_TYPE)
        y = x + 1
        before = torch.loom.memory_allocated()
        del x, y
    events = [e["args"] for e in trace(prof) if e["name"] == "[memory]" and e["args"]["Device Type"] == 20]
    assert [e["Bytes"] for e in events][:2] == [4 << 20, 4 << 20]
    assert sum(e["Bytes"] for e in events) == 0
    assert max(e["Total Allocated"] for e in events) == before
    assert all(e["Total Reserved"] >= e["Total Allocated"] for e in events)
    assert average(prof, "aten::empty").self_device_memory_usage == 4 << 20
    assert average(prof, "aten::add").device_memory_usage == 4 << 20
    assert average(prof, "[memory]").self_device_memory_usage == -(8 << 20)
    assert f"Self {DEVICE_TYPE.upper()} Mem" in prof.key_averages().table()


def test_memory_timeline_stacks_and_shapes(tmp_path: Path) -> None:
    model = torch.nn.Linear(16, 16, device=DEVICE_TYPE)
    with profile(profile_memory=True, record_shapes=True, with_stack=True) as prof:
        model(torch.ones(4, 16, device=DEVICE_TYPE)).sum().backward()
    assert [[4, 16]] in [e.input_shapes[:1] for e in prof.key_averages(group_by_input_shape=True)]
    assert any("test_profiler" in name for name in names(of(trace(prof), "python_function")))
    path = tmp_path / "timeline.raw.json.gz"
    prof.export_memory_timeline(str(path))
    path = tmp_path / "timeline.json"
    prof.export_memory_timeline(str(path))
    times, sizes = json.loads(path.read_text(encoding="utf-8"))
    assert len(times) == len(sizes) > 2
    assert max(sum(size) for size in sizes) > 0


def test_threads() -> None:
    """A profile that runs in a thread; what others issue meanwhile stands on the devices' rows alone."""
    x = torch.ones(8, device=DEVICE_TYPE)
    results: list[profile] = []

    def run() -> None:
        with profile() as prof:
            x.sin()
            other = threading.Thread(target=x.cos)
            other.start()
            other.join()
        results.append(prof)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    [prof] = results
    assert kernels(prof) == [f"{DEVICE_TYPE}::sin", f"{DEVICE_TYPE}::cos"]
    averages = {a.key: a for a in prof.key_averages() if a.device_type == DeviceType.CPU}
    assert averages["aten::sin"].self_device_time_total > 0
    assert "aten::cos" not in averages


def test_backward_and_other_devices() -> None:
    w = torch.ones(16, 16, device=DEVICE_TYPE, requires_grad=True)
    with profile() as prof:
        (w @ w).sum().backward()
        if torch.loom.device_count() > 1:
            torch.ones(4, device=f"{DEVICE_TYPE}:1").sin()
    assert kernels(prof).count(f"{DEVICE_TYPE}::mm") == 3
    assert average(prof, "MmBackward0").device_time_total > 0
    if torch.loom.device_count() > 1:
        events = trace(prof)
        assert {e["pid"] for e in of(events, "kernel")} == {0, 1}
        assert {"name": f"{DEVICE_TYPE}:1"} in [e["args"] for e in events if e["name"] == "process_name"]


def test_without_kineto() -> None:
    """The profiler of torch.autograd: events around each op."""
    x = torch.ones(128, 128, device=DEVICE_TYPE)
    with torch.autograd.profiler.profile(use_device=DEVICE_TYPE) as prof:
        for _ in range(3):
            torch.mm(x, x)
    [op] = [a for a in prof.key_averages() if a.key == "aten::mm"]
    assert op.count == 3
    assert op.is_legacy
    assert op.device_time_total > 0
    assert f"{DEVICE_TYPE.upper()} total" in prof.key_averages().table()


@pytest.mark.exercises("torch.cuda.profiler.cudart", "torch.cuda.profiler.check_error")
def test_what_is_nvidias() -> None:
    for function, arguments in ((torch.loom.profiler.cudart, ()), (torch.loom.profiler.check_error, (0,))):
        with pytest.raises(NotImplementedError, match="CUDA runtime library"):
            function(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [
        {"TORCH_LOOM_LAUNCH": "chaos"},
        {"TORCH_LOOM_DRIVER": "null", "TORCH_LOOM_CLOCK": "wall"},
        {"TORCH_LOOM_CLOCK": "simulated", "TORCH_LOOM_DRIVER": "null"},
    ],
    ids=lambda env: next(iter(env.values())),
)
def test_other_settings(fork_loom: PythonRunner, env: dict[str, str]) -> None:
    """Other launch modes and drivers; a fork within a profile."""
    took_time = fork_loom(PROGRAMS / "program.py", env).stdout.strip()
    # What runs nothing takes none of this machine's time.
    assert took_time == str(env.get("TORCH_LOOM_CLOCK") != "wall")


@pytest.mark.slow
def test_end_of_the_program(warm_python: PythonRunner) -> None:
    """It may come while a profile runs; here with the device under its other name."""
    done = warm_python(PROGRAMS / "program.py", {"TORCH_LOOM_DEVICE_NAME": "rbln"})
    assert "True" in done.stdout
