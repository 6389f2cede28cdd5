"""Where a program looks, CUDA's answer: wording and classes of errors, handles, what counts as a wait."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.profiler import profile

import torch_loom.device as loom
from torch_loom.device.jiterator import _create_jit_fn
from torch_loom.errors import InvalidDeviceError

PROGRAMS = Path(__file__).parent / "programs" / "like_cuda"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


def test_the_default_streams_handle_is_null() -> None:
    for index in range(2):
        stream = loom.default_stream(index)
        assert stream.cuda_stream == 0
        assert stream.native_handle != 0
        assert loom.ExternalStream(stream.cuda_stream, index) == stream
    side = loom.Stream()
    assert side.cuda_stream == side.native_handle != 0


def test_an_event_has_no_device_before_it_is_recorded() -> None:
    event = loom.Event()
    assert event.device is None
    event.record(loom.default_stream(1))
    assert event.device == torch.device("loom:1")


@pytest.mark.parametrize("index", [9, -1])
def test_devices_that_there_are_not(index: int) -> None:
    for call, text in (
        (lambda: loom.get_device_properties(index), "Invalid device id"),
        (lambda: loom.can_device_access_peer(index, 0), "Invalid device id"),
        (lambda: loom.can_device_access_peer(0, index), "Invalid peer device id"),
    ):
        with pytest.raises(AssertionError, match=text) as caught:
            call()
        assert isinstance(caught.value, InvalidDeviceError)


def test_errors_say_what_cudas_say() -> None:
    torch.ones(1, device="loom")
    text = "template <typename T> T scaled(T x, T a) { return x * a; }"
    scaled = _create_jit_fn(text, a=2.0)
    x = torch.ones(2, device="loom")
    pool = loom.MemPool()
    cases: tuple[tuple[Callable[[], object], type[Exception], str], ...] = (
        (
            lambda: torch.empty(1 << 60, dtype=torch.uint8, device="loom").data_ptr(),
            torch.OutOfMemoryError,
            "more than 1EB memory",
        ),
        (
            lambda: loom.use_mem_pool(pool).__enter__(),
            RuntimeError,
            "beginAllocateToPool: already recording to mempool_id",
        ),
        (
            lambda: loom.change_current_allocator(loom.memory._get_current_allocator()),
            RuntimeError,
            "Can't swap an already initialized allocator",
        ),
        (lambda: _create_jit_fn("no function"), Exception, "Couldn't parse code, please check correctness"),
        (lambda: scaled(*[x] * 9), AssertionError, "jiterator only supports up to 8 tensor inputs"),
        (lambda: scaled(x, b=1), KeyError, "b is not declared in function definition"),
    )
    with loom.use_mem_pool(pool):
        for call, kind, message in cases:
            with pytest.raises(kind, match=re.escape(message)):
                call()


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_optimizers_that_are_not_capturable_are_not_captured(kind: type[torch.optim.Optimizer]) -> None:
    for capturable in (False, True):
        weight = nn.Parameter(torch.ones(3, device="loom"))
        optimizer = kind([weight], capturable=capturable)  # type: ignore[call-arg]
        weight.grad = torch.ones(3, device="loom")
        optimizer.step()
        graph = loom.LoomGraph()
        if capturable:
            with loom.graph(graph):
                optimizer.step()
            before = weight.detach().cpu()
            graph.replay()
            assert bool((weight.detach().cpu() < before).all())
            continue
        with (
            pytest.raises(
                RuntimeError,
                match=f"Attempting LOOM graph capture of step\\(\\) for an instance of {kind.__name__} but "
                "param_groups' capturable is False",
            ),
            loom.graph(graph),
        ):
            optimizer.step()


def test_half_precision_draws_no_zero_from_an_exponential_distribution() -> None:
    loom.manual_seed(0)
    x = torch.empty(2_000_000, dtype=torch.float16, device="loom")
    assert x.exponential_().min().item() > 0
    assert abs(x.float().mean().item() - 1) < 0.01


def test_a_profile_becomes_a_snapshot() -> None:
    with profile(profile_memory=True, record_shapes=True, with_stack=True) as prof:
        kept = torch.ones(1000, device="loom")
        kept.add_(1)
        dropped = kept * 2
        del dropped
    snapshot = loom._memory_viz._profile_to_snapshot(prof)
    assert len(snapshot["device_traces"]) == loom.device_count() + 1
    actions = [entry["action"] for entry in snapshot["device_traces"][0]]
    assert actions.count("alloc") - actions.count("free_completed") == 1
    assert actions.count("free_requested") == actions.count("free_completed") >= 1
    (segment,) = (segment for segment in snapshot["segments"] if segment["device"] == 0)
    live = [block for block in segment["blocks"] if block["state"] == "active_allocated"]
    assert [block["size"] for block in live] == [4096]
    assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    assert segment["address"] == kept.data_ptr()
    assert "Active Memory Timeline" in loom._memory_viz.profile_plot(prof)


def test_a_trace_hears_of_waits_within_ops(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "traced.py")


@pytest.mark.slow
@pytest.mark.parametrize("device", ["loom", "cuda"])
def test_cudas_variable_turns_the_sanitizer_on(run_python: PythonRunner, device: str) -> None:
    done = run_python(
        PROGRAMS / "cudas_variable_turns_the_sanitizer_on.py",
        {"TORCH_CUDA_SANITIZER": "1", "TORCH_LOOM_DEVICE_NAME": device},
        check=False,
        given=device,
    )
    assert "CUDASanitizerErrors" in done.stderr
    assert "detected 1 errors" in done.stderr
