"""Streams by their native handles and ids."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING

import pytest
import torch

import torch_loom.device as loom
from torch_loom.errors import DeviceTypeError, InvalidDeviceError

if TYPE_CHECKING:
    from tests.gate import Gate


@pytest.fixture(autouse=True)
def default_stream() -> None:
    loom.set_stream(loom.default_stream(1))
    loom.set_stream(loom.default_stream(0))


@pytest.mark.exercises("torch.cuda.ExternalStream", "torch.cuda.streams.ExternalStream")
def test_external_stream_is_the_stream() -> None:
    stream = loom.Stream(priority=-1)
    external = loom.ExternalStream(stream.native_handle)
    assert external == stream
    assert hash(external) == hash(stream)
    assert isinstance(external, loom.Stream)
    assert (external.stream_id, external.device, external.priority) == (stream.stream_id, stream.device, -1)
    with external:
        assert loom.current_stream() == stream
        x = torch.arange(1000.0, device="loom")
        y = x * 2
        event = external.record_event()
    x.record_stream(external)
    loom.current_stream().wait_event(event)
    external.synchronize()
    assert external.query()
    assert event.query()
    assert y.sum().item() == 999000


def test_work_of_the_external_stream_is_ordered(gate: Gate) -> None:
    """An event of the external stream holds others back until the stream itself goes on."""
    stream = loom.Stream()
    external = loom.ExternalStream(stream.loom_stream, "loom:0")
    gate.hold(stream)
    event = external.record_event()
    assert not external.query()
    assert not event.query()
    gate.open()
    external.synchronize()
    assert event.query()


@pytest.mark.exercises("torch.cuda.get_stream_from_external")
def test_get_stream_from_external() -> None:
    stream = loom.Stream("loom:1")
    found = loom.get_stream_from_external(stream.cuda_stream, 1)
    assert type(found) is loom.Stream
    assert found == stream == loom.get_stream_from_external(stream.cuda_stream)
    assert found.cuda_stream == stream.cuda_stream == stream.loom_stream == stream.native_handle
    assert loom.get_stream_from_external(0) == loom.default_stream(0)
    assert loom.ExternalStream(0, "loom:1") == loom.default_stream(1)
    default = loom.default_stream(1)
    assert loom.get_stream_from_external(default.cuda_stream, 1) == default


@pytest.mark.parametrize("take", [loom.ExternalStream, loom.get_stream_from_external])
def test_bad_handles(take: type[loom.ExternalStream]) -> None:
    stream = loom.Stream()
    for bad in (1, stream.native_handle + 8, id(stream), -1, 2**64, 2**200):
        with pytest.raises(ValueError, match="handle of no loom stream"):
            take(bad)
    for wrong in ("1", None, 1.0, True, stream):
        with pytest.raises(TypeError, match="must be an int"):
            take(wrong)  # type: ignore[arg-type]
    with pytest.raises(DeviceTypeError, match="loom:0, not of loom:1"):
        take(stream.native_handle, 1)
    with pytest.raises(InvalidDeviceError):
        take(stream.native_handle, 100)
    with pytest.raises(DeviceTypeError):
        take(stream.native_handle, "cpu")


@pytest.mark.exercises("torch.cuda._set_stream_by_id")
def test_set_stream_by_id() -> None:
    stream = loom.Stream("loom:1")
    loom._set_stream_by_id(stream.stream_id, stream.device_index, stream.device_type)
    assert loom.current_stream() == stream
    assert loom.current_device() == 1
    with pytest.raises(ValueError, match="no stream"):
        loom._set_stream_by_id(1000, 0, stream.device_type)
    with pytest.raises(DeviceTypeError):
        loom._set_stream_by_id(stream.stream_id, 1, 1)
    assert loom.current_stream() == stream


def test_handles_for_c() -> None:
    stream, event = loom.Stream(), loom.Event()
    assert stream._as_parameter_.value == stream.native_handle
    assert event.cuda_event == 0
    assert event._as_parameter_.value is None
    event.record(stream)
    assert event.cuda_event == event.event_id == event._as_parameter_.value != 0
    identity = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda handle: handle)
    assert identity(stream) == stream.native_handle


@pytest.mark.exercises("torch.cuda.Stream", "torch.cuda.streams.Stream")
def test_stream_attributes() -> None:
    low, high = loom.Stream(), loom.Stream(priority=-5)
    assert loom.Stream.priority_range() == (0, -1)
    assert (low.priority, high.priority) == (0, -1)
    assert len({low.native_handle, high.native_handle, loom.default_stream().native_handle}) == 3
    graph, x = loom.LoomGraph(), torch.ones(3, device="loom")
    x.data_ptr()
    loom.synchronize()
    assert not low.is_capturing()
    with loom.graph(graph, stream=low):
        assert low.is_capturing()
        assert not high.is_capturing()
        y = x + 1
    assert not low.is_capturing()
    graph.replay()
    assert y.sum().item() == 6
    for name in ("raw_cuda_graph", "raw_cuda_graph_exec"):
        with pytest.raises(NotImplementedError, match="cudaGraph"):
            getattr(graph, name)()


def test_other_threads() -> None:
    stream = loom.Stream()
    found: list[loom.Stream] = []
    thread = threading.Thread(target=lambda: found.append(loom.ExternalStream(stream.native_handle)))
    thread.start()
    thread.join()
    assert found == [stream]
