"""Callbacks of torch.loom._gpu_trace. They stay for the life of a process: each test has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import torch_loom.device as loom

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

FUNCTIONS = (
    "register_callback_for_device_synchronization",
    "register_callback_for_event_creation",
    "register_callback_for_event_deletion",
    "register_callback_for_event_record",
    "register_callback_for_event_synchronization",
    "register_callback_for_event_wait",
    "register_callback_for_memory_allocation",
    "register_callback_for_memory_deallocation",
    "register_callback_for_stream_creation",
    "register_callback_for_stream_synchronization",
)

SETUP = """
import torch_loom.device as loom
from torch_loom.device import _gpu_trace as trace
told = []
for name in {names!r}:
    kind = name.removeprefix("register_callback_for_")
    getattr(trace, name)(lambda *args, kind=kind: told.append((kind, *args)))
def taken():
    result = told[:]
    told.clear()
    return result
"""


@pytest.mark.exercises(
    "torch.cuda._gpu_trace.register_callback_for_device_synchronization",
    "torch.cuda._gpu_trace.register_callback_for_event_creation",
    "torch.cuda._gpu_trace.register_callback_for_event_deletion",
    "torch.cuda._gpu_trace.register_callback_for_event_record",
    "torch.cuda._gpu_trace.register_callback_for_event_synchronization",
    "torch.cuda._gpu_trace.register_callback_for_event_wait",
    "torch.cuda._gpu_trace.register_callback_for_memory_allocation",
    "torch.cuda._gpu_trace.register_callback_for_memory_deallocation",
    "torch.cuda._gpu_trace.register_callback_for_stream_creation",
    "torch.cuda._gpu_trace.register_callback_for_stream_synchronization",
)
def test_each_kind(fork_loom: PythonRunner) -> None:
    fork_loom(
        SETUP.format(names=FUNCTIONS)
        + """
x = torch.empty(10, device="loom")
address = x.data_ptr()
assert taken() == [("memory_allocation", address)], told
del x
assert taken() == [("memory_deallocation", address)]
stream = loom.Stream()
assert taken() == [("stream_creation", stream.native_handle)]
event = loom.Event()
assert taken() == []
event.record(stream)
handle = event.event_id
assert taken() == [("event_creation", handle), ("event_record", handle, stream.native_handle)]
default = loom.current_stream()
event.wait()
assert taken() == [("event_wait", handle, default.cuda_stream)] == [("event_wait", handle, 0)]
event.synchronize()
assert taken() == [("event_synchronization", handle)]
stream.synchronize()
assert taken() == [("stream_synchronization", stream.native_handle)]
loom.synchronize()
assert taken() == [("device_synchronization",)]
del event
assert taken() == [("event_deletion", handle)]
torch.ones(5).pin_memory("loom")
assert taken() == []
"""
    )


def test_several_callbacks_and_their_errors(fork_loom: PythonRunner) -> None:
    done = fork_loom(
        SETUP.format(names=())
        + """
import threading

def fail(address):
    raise ValueError("the callback failed")

calls = []
trace.register_callback_for_memory_allocation(fail)
def compute(address):
    calls.append(torch.ones(3, device="loom").sum().item())
trace.register_callback_for_memory_allocation(compute)
x = torch.ones(10, device="loom")
x.data_ptr()
assert calls == [3.0], calls
assert x.sum().item() == 10
trace.MemoryAllocationCallbacks.callback_list.pop()

def interrupt(address):
    raise KeyboardInterrupt
trace.register_callback_for_memory_deallocation(interrupt)
interrupted = False
try:
    del x
    for _ in range(1000):
        pass
except KeyboardInterrupt:
    interrupted = True
assert interrupted
raises("TypeError", "cb must be callable", lambda: trace.register_callback_for_event_wait(3))

# From all threads, workers' frees included.
trace.MemoryDeallocationCallbacks.callback_list.clear()
trace.MemoryAllocationCallbacks.callback_list.clear()
live = set()
trace.register_callback_for_memory_allocation(live.add)
trace.register_callback_for_memory_deallocation(live.remove)
def work():
    with loom.stream(loom.Stream()):
        for size in range(1, 50):
            y = torch.ones(size * 100, device="loom")
            z = (y + y).sum()
            del y
        assert z.item() == 9800
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
loom.synchronize()
del threads
assert not live, live
"""
    )
    assert "Exception in callback for memory allocation" in done.stderr
    assert "the callback failed" in done.stderr


def test_is_a_module_of_the_device() -> None:
    import torch

    assert torch.loom._gpu_trace is loom._gpu_trace  # type: ignore[attr-defined]
    assert set(loom._gpu_trace.__all__) == set(FUNCTIONS)
