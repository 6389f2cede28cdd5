"""Simulated time: what it is made of, and that nothing real changes it."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.conftest import PythonRunner
from torch_loom import _C
from torch_loom.chips.cost.calls import of_command
from torch_loom.chips.cost.lower import ATTRIBUTES, lower
from torch_loom.device._core import clock as simulated_time

PROGRAMS = Path(__file__).parent / "programs" / "simulated_clock"


@pytest.fixture(autouse=True)
def simulated() -> Iterator[None]:
    with simulated_time.simulated():
        yield


def seconds_of_device() -> float:
    return torch.loom.clock(0)


@pytest.mark.slow
def test_the_same_times_in_every_launch_mode_and_driver(fork_loom: PythonRunner) -> None:
    found = []
    for launch, driver in (
        ("auto", "virtual"),
        ("blocking", "virtual"),
        ("chaos", "virtual"),
        ("auto", "null"),
    ):
        env = {"TORCH_LOOM_CLOCK": "simulated", "TORCH_LOOM_LAUNCH": launch, "TORCH_LOOM_DRIVER": driver}
        found.append(json.loads(fork_loom(PROGRAMS / "program.py", env).stdout))
    assert all(each[:3] == found[0][:3] for each in found)
    assert found[0][3] == found[1][3] == found[2][3]
    assert 0 < found[0][0] * 1e-3 <= found[0][1] <= found[0][2]


@pytest.mark.parametrize(("chip", "gain"), [("h100", 3.0), ("t4", 1.0), ("loom1", 1.0)])
def test_products_of_float32_take_tf32s_time_where_it_is_allowed(
    fork_loom: PythonRunner, chip: str, gain: float
) -> None:
    env = {"TORCH_LOOM_CLOCK": "simulated", "TORCH_LOOM_CHIP": chip, "TORCH_LOOM_DRIVER": "null"}
    fast, product, slow, slow_product, *again = json.loads(
        fork_loom(PROGRAMS / "products_in_tf32.py", env).stdout
    )
    assert again == [fast, product]
    for whole, rounded in ((slow, fast), (slow_product, product)):
        assert whole == rounded if gain == 1.0 else whole > gain * rounded


def test_streams_overlap_and_each_runs_in_order() -> None:
    first, second = torch.loom.Stream(), torch.loom.Stream()
    torch.loom.synchronize()
    cycles = torch.loom.get_device_properties(0).clock_rate // 1000 or 1000
    before = seconds_of_device()
    for stream in (first, second, first):
        with torch.loom.stream(stream):
            torch.loom._sleep(cycles * 1000)  # a millisecond
    issued = torch.loom.clock() - before
    torch.loom.synchronize()
    took = seconds_of_device() - before
    assert took == pytest.approx(2e-3, rel=0.05)
    assert issued < 0.1e-3
    assert torch.loom.clock() == seconds_of_device()


def test_a_stream_goes_on_when_what_it_waits_for_has_run() -> None:
    first, second = torch.loom.Stream(), torch.loom.Stream()
    start, middle, end = (torch.loom.Event(enable_timing=True) for _ in range(3))
    torch.loom.synchronize()
    start.record(second)
    with torch.loom.stream(first):
        torch.loom._sleep(1_000_000)
    middle.record(first)
    second.wait_event(middle)
    with torch.loom.stream(second):
        torch.loom._sleep(500_000)
    end.record(second)
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(1.5 * start.elapsed_time(middle), rel=0.02)
    # The host has waited for the event, and for no more.
    assert torch.loom.clock() == seconds_of_device()


@pytest.mark.long
def test_pinned_copies_leave_the_host_free_and_take_turns() -> None:
    size = 1 << 24
    pinned, pageable = torch.ones(size, pin_memory=True), torch.ones(size)
    target = torch.zeros(size, device="loom").add_(1)  # has its memory under every policy
    other = torch.loom.Stream()
    torch.loom.synchronize()

    def copied(source: torch.Tensor) -> tuple[float, float]:
        before = torch.loom.clock()
        target.copy_(source, non_blocking=True)
        host = torch.loom.clock() - before
        torch.loom.synchronize()
        return host, seconds_of_device() - before

    host, whole = copied(pinned)
    assert host < whole / 10
    host, paged = copied(pageable)
    assert host == pytest.approx(paged)
    assert paged > whole
    before = torch.loom.clock()
    target.copy_(pinned, non_blocking=True)
    with torch.loom.stream(other):
        target.clone().copy_(pinned, non_blocking=True)
    torch.loom.synchronize()
    assert seconds_of_device() - before >= 2 * 0.98 * whole


@pytest.mark.long
def test_an_op_costs_what_the_model_says_for_its_shapes() -> None:
    def took(count: int) -> float:
        x = torch.ones(count, count, device="loom")
        torch.loom.synchronize()
        before = seconds_of_device()
        x @ x
        torch.loom.synchronize()
        return seconds_of_device() - before

    small, large, again = took(256), took(2048), took(2048)
    assert large > 4 * small
    assert large == pytest.approx(again, abs=1e-9)


def test_an_op_costs_the_same_where_its_results_are_given() -> None:
    def took(op: Callable[[], object]) -> float:
        torch.loom.synchronize()
        before = seconds_of_device()
        op()
        torch.loom.synchronize()
        return seconds_of_device() - before

    rows, narrow = torch.rand(512, 2048, device="loom"), torch.rand(2048, 64, device="loom")
    bias = torch.rand(64, device="loom")
    ops: dict[str, tuple[Callable[..., object], tuple[object, ...]]] = {
        "mm": (torch.mm, (rows, narrow)),
        "addmm": (torch.addmm, (bias, rows, narrow)),
        "bmm": (torch.bmm, (rows[None], narrow[None])),
        "add": (torch.add, (rows, rows)),
        "sum": (torch.sum, (rows, 1)),
        "softmax": (torch.softmax, (rows, 1)),
        "topk": (torch.topk, (rows, 4)),
        "cat": (torch.cat, ([rows, rows],)),
    }
    for name, (function, arguments) in ops.items():
        made = function(*arguments)
        out = [torch.empty_like(each) for each in made] if isinstance(made, tuple) else torch.empty_like(made)
        seconds = [took(functools.partial(function, *arguments, **given)) for given in ({}, {"out": out})]
        assert seconds[1] == pytest.approx(seconds[0], abs=1e-9), name


def test_a_replay_costs_the_host_one_issue() -> None:
    x = torch.ones(64, 64, device="loom").add_(1)
    graph = torch.loom.CUDAGraph() if hasattr(torch.loom, "CUDAGraph") else torch.loom.Graph()
    torch.loom.synchronize()
    before = seconds_of_device()
    with torch.loom.graph(graph):
        y = x
        for _ in range(20):
            y = y + x
    assert seconds_of_device() - before < 20e-6  # a capture runs nothing
    torch.loom.synchronize()
    before = torch.loom.clock()
    graph.replay()
    host = torch.loom.clock() - before
    torch.loom.synchronize()
    one = torch.loom.clock()
    _ = x + x
    issue = torch.loom.clock() - one
    assert host == pytest.approx(issue)
    assert one - before > 20 * 100e-9


def test_a_profile_has_device_time() -> None:
    def profiled() -> dict[str, float]:
        with torch.profiler.profile() as profile:
            x = torch.ones(64, 64, device="loom")
            (x @ x).relu().sum().item()
        return {
            row.key: round(row.device_time_total, 3)
            for row in profile.key_averages()
            if row.device_time_total
        }

    first, second = profiled(), profiled()
    assert {"aten::mm", "aten::relu", "aten::sum"} <= set(first)
    assert first == second


def test_the_work_of_a_profile_stands_behind_its_calls() -> None:
    def profiled() -> tuple[list[int], list[int]]:
        """Start of each kernel and copy since the first one, and its duration, in nanoseconds."""
        x = torch.ones(64, 64, device="loom").add(1)  # it is on the device under the lazy policy, too
        with torch.profiler.profile() as profile:
            x.mul_(0.5)
            (x @ x).relu().sum().item()
            x.cos_()
        assert profile.profiler is not None
        assert profile.profiler.kineto_results is not None
        events = profile.profiler.kineto_results.events()
        ops = {event.correlation_id(): event for event in events if event.name().startswith("aten::")}
        calls = {
            event.correlation_id(): event
            for event in events
            if event.name() in {"loomLaunchKernel", "loomMemcpyAsync"}
        }
        work = [
            event
            for event in events
            if event.device_type() == torch.autograd.DeviceType.PrivateUse1 and "Sync" not in event.name()
        ]
        work.sort(key=lambda event: event.start_ns())
        assert len(work) == len(calls) == 6
        for event in work:
            call = calls[event.correlation_id()]
            op = ops[event.linked_correlation_id()]
            assert op.start_ns() <= call.start_ns()
            assert call.end_ns() <= op.end_ns()
            assert call.start_ns() < event.start_ns()
        for before, after in itertools.pairwise(work):
            assert before.end_ns() <= after.start_ns()
        *waited_for, _ = work  # the host waited for item(): what came then stands behind its own call
        return (
            [event.start_ns() - work[0].start_ns() for event in waited_for],
            [event.duration_ns() for event in work],
        )

    assert profiled() == profiled()


def test_events_must_have_been_recorded() -> None:
    start, end = (torch.loom.Event(enable_timing=True) for _ in range(2))
    start.record()
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(end)


class _Watched(dict[str, object]):
    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
        self.asked.add(key)
        return default


def test_costs_depend_on_declared_attributes_alone() -> None:
    large = (0, (2, 4, 8, 8), (256, 64, 8, 1), 2, False, "float16")
    small = (0, (2, 4, 1, 1), (4, 1, 1, 1), 2, False, "float16")
    names = (
        "convolution",
        "convolution_backward",
        "sum",
        "_softmax",
        "native_layer_norm",
        "pow",
        "mm",
        "copy_",
    )
    names += (
        "native_batch_norm",
        "max_pool2d_with_indices",
        "embedding",
        "sort",
        "native_dropout",
        "cat",
        "add",
    )
    names += ("scaled_dot_product_attention", "index_put_", "cumsum", "gather", "_foreach_add_", "avg_pool2d")
    asked: set[str] = set()
    for name, tensor in itertools.product(names, (large, small)):
        watched = _Watched()
        lower(of_command(f"aten::{name}", (tensor,) * 3, (tensor,), {})._replace(attributes=watched))
        asked |= watched.asked
    assert asked - {"link"} == set(ATTRIBUTES) - {"launch"}


def test_costs_are_asked_for_when_a_time_is_read(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "costs_are_asked_for_when_a_time_is_read.py", env={"TORCH_LOOM_CLOCK": "simulated"})


@pytest.mark.long
def test_a_program_that_reads_no_time_estimates_nothing(fork_loom: PythonRunner) -> None:
    fork_loom(
        PROGRAMS / "a_program_that_reads_no_time_estimates_nothing.py", env={"TORCH_LOOM_CLOCK": "simulated"}
    )


def test_when_a_time_is_read_changes_no_time() -> None:
    def program(size: int, reads: bool) -> float:
        torch.loom.synchronize()
        side = torch.loom.Stream()
        began = torch.loom.clock()
        for step in range(3):
            x = torch.ones(size + step, 8, device="loom")
            side.wait_stream(torch.loom.current_stream())
            with torch.loom.stream(side):
                x.exp()
            if reads:
                torch.loom.clock()
            x.sum().item()
            torch.loom.current_stream().wait_stream(side)
        torch.loom.synchronize()
        return torch.loom.clock() - began

    program(1, True)
    # Sizes that no test had before: their costs are asked for at the reads, or at the end.
    late = program(1 << 15, False)
    assert late == pytest.approx(program(1 << 15, True), abs=1e-12)
    early = program(3 << 15, True)
    assert early == pytest.approx(program(3 << 15, False), abs=1e-12)


def elapsed(program: Callable[[], object]) -> float:
    torch.loom.synchronize()
    began = torch.loom.clock()
    program()
    torch.loom.synchronize()
    return torch.loom.clock() - began


@pytest.mark.long
def test_more_commands_than_are_put_off_take_the_same_time() -> None:
    x = torch.zeros(3, 331, device="loom").exp().log()  # computed there: no policy has to move it

    def program() -> None:
        for _ in range(530_000):  # csrc/runtime/simulated_clock.cpp: kMaxSteps
            x.add_(1)

    late = elapsed(program)  # nothing had this size before
    assert late == pytest.approx(elapsed(program), abs=1e-9)
    assert (x == 1_060_000).all()


@pytest.mark.long
def test_more_sizes_than_are_put_off_take_the_same_time() -> None:
    x = torch.zeros(33_500, device="loom").exp()

    def program() -> None:
        for size in range(1, 33_000):  # kMaxUnknown
            x.narrow(0, 0, size).neg_()

    late = elapsed(program)
    assert late == pytest.approx(elapsed(program), abs=1e-9)


def varied_ops() -> dict[str, Callable[[], object]]:
    """Ops that differ from one another in one argument, dtype or shape."""
    x, y = torch.rand(64, 48, device="loom"), torch.rand(64, 48, device="loom")
    n, half = torch.arange(64 * 48, device="loom").view(64, 48), x.to(torch.float16)
    image, weight = torch.rand(2, 8, 16, 16, device="loom"), torch.rand(8, 8, 3, 3, device="loom")
    grouped, rows = torch.rand(8, 2, 3, 3, device="loom"), torch.arange(0, 64, 2, device="loom")
    conv, functional = torch.conv2d, torch.nn.functional
    many_integers = torch.arange(1 << 20, device="loom")
    places, values = torch.tensor([[0, 1]], device="loom"), torch.ones(2, 8, device="loom")
    few, many = (torch.sparse_coo_tensor(places, values, (rows, 8)) for rows in (2, 400_000))
    return {
        "add": lambda: x + y,
        "add twice the same": lambda: x + x,
        "add half": lambda: half + half,
        "add to integers": lambda: n + 1,
        "add a fraction to integers": lambda: n + 1.5,
        "add the host's number": lambda: n + torch.tensor(2),
        "add the host's fraction": lambda: n + torch.tensor(2.5),
        "add a fraction to many": lambda: many_integers + 1.5,
        "add the host's double to many": lambda: many_integers + torch.tensor(1.5, dtype=torch.float64),
        "square": lambda: x.pow(2),
        "cube": lambda: x.pow(3),
        "root": lambda: x.pow(0.5),
        "sum of all": lambda: x.sum(),
        "sum of rows": lambda: x.sum(1),
        "sum of columns": lambda: x.sum(0),
        "sum that keeps": lambda: x.sum(0, keepdim=True),
        "sum as double": lambda: x.sum(1, dtype=torch.float64),
        "mean of both": lambda: x.mean((0, 1)),
        "softmax": lambda: x.softmax(1),
        "softmax of columns": lambda: x.softmax(0),
        "convolution": lambda: conv(image, weight),
        "strided": lambda: conv(image, weight, stride=2),
        "padded": lambda: conv(image, weight, padding=1),
        "grouped": lambda: conv(image, grouped, groups=4),
        "norm": lambda: functional.layer_norm(x, (48,)),
        "norm of all": lambda: functional.layer_norm(x, (64, 48)),
        "rows together": lambda: torch.cat([x, y]),
        "columns together": lambda: torch.cat([x, y], 1),
        "rows": lambda: x.index_select(0, rows),
        "masked": lambda: x[x > 0.5],
        "few masked": lambda: x[x > 0.99],
        "where": lambda: torch.nonzero(x > 0.25),
        "to half": lambda: x.to(torch.float16),
        "cumulated": lambda: x.cumsum(1),
        "list": lambda: torch._foreach_add([x, y], 1.0),
        "longer list": lambda: torch._foreach_add_([x.clone(), y.clone(), x.clone()], 1.0),
        "into": lambda: torch.add(x, y, out=torch.empty(0, device="loom")),
        "quotient of integers": lambda: n / n.clamp(min=1),
        "random": lambda: torch.rand(64, 48, device="loom"),
        "few numbers": lambda: torch.arange(0.0, 10.0, 1.0, device="loom"),
        "many numbers": lambda: torch.arange(0.0, 4e6, 1.0, device="loom"),
        "cumulated as double": lambda: x.cumsum(1, dtype=torch.float64),
        "small sparse": lambda: few.to_dense(),
        "large sparse": lambda: many.to_dense(),
        "transposed": lambda: x.t() + y.t(),
        "narrow product": lambda: x.to(torch.bfloat16).matmul(y.t().to(torch.bfloat16)),
    }


def test_a_kernel_of_which_nobody_is_told_costs_the_same() -> None:
    def took(op: Callable[[], object]) -> float:
        torch.loom.synchronize()
        before = torch.loom.clock()
        op()
        torch.loom.synchronize()
        return torch.loom.clock() - before

    ops = varied_ops()
    counter = _C.KernelCounter(True)
    counter.attach()
    told = {name: took(op) for name, op in ops.items()}
    counter.detach()
    assert told["many numbers"] > 2 * told["few numbers"]
    assert told["large sparse"] > 2 * told["small sparse"]
    assert told["cumulated as double"] > told["cumulated"]
    # The first call is described and its cost is cached; later calls are not described.
    for _ in range(3):
        assert {name: took(op) for name, op in ops.items()} == pytest.approx(told, abs=1e-12)
    assert len({round(1e9 * each) for each in told.values()}) > len(ops) // 2
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert took(ops["quotient of integers"]) > told["quotient of integers"]
    finally:
        torch.set_default_dtype(default)


def test_a_profile_begins_behind_what_was_put_off() -> None:
    x = torch.ones(1 << 17, device="loom")
    for step in range(5):
        x[: (1 << 16) + step].exp()
    began = torch.loom.clock()
    x[: (1 << 16) + 100].exp()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.PrivateUse1]) as profile:
        x[: (1 << 16) + 101].exp()
        torch.loom.synchronize()
    rows = [event for event in profile.events() if event.device_type != torch.autograd.DeviceType.CPU]
    assert sum(row.device_time_total for row in rows) > 0
    assert torch.loom.clock() > began
