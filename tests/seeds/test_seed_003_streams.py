"""Seed 003: streams and events. Keys as in seed_003.txt."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

import torch_loom.device as loom
from tests.gate import Gate


@pytest.fixture(autouse=True)
def default_streams() -> Iterator[None]:
    yield
    assert loom.current_device() == 0
    assert loom.current_stream() == loom.default_stream()


@pytest.mark.seed(2, "current_stream", "default_stream")
@pytest.mark.seed(3, "current_stream/1", "current_stream/2", "default_stream/1", "default_stream/2")
@pytest.mark.exercises("torch.cuda.current_stream", "torch.cuda.default_stream")
def test_current_and_default_stream() -> None:
    side = loom.Stream(1)
    with loom.device(1):
        loom.set_stream(side)
        assert loom.current_stream() == loom.current_stream(None) == side
        assert loom.default_stream() == loom.default_stream("loom:1") != side
    assert loom.current_stream("loom:1") == loom.current_stream(1) == side
    assert loom.current_stream() == loom.default_stream(0) == loom.default_stream(None)
    assert loom.default_stream().device == torch.device("loom:0")
    loom.set_stream(loom.default_stream(1))
    loom.set_device(0)


@pytest.mark.seed(2, "stream", "StreamContext", "set_stream")
@pytest.mark.seed(3, "stream/1", "stream/2", "stream/3", "stream/4")
@pytest.mark.exercises("torch.cuda.stream", "torch.cuda.StreamContext", "torch.cuda.set_stream")
def test_stream_as_context(gate: Gate) -> None:
    side, other = loom.Stream(), loom.Stream(1)
    with loom.stream(side):
        torch.ones(4, device="loom") + 1  # the first time, an op runs in the caller
    gate.hold(side)
    with loom.stream(side) as nothing:
        assert nothing is None
        assert loom.current_stream() == side
        y = torch.ones(4, device="loom") + 1  # behind the gate
        with loom.stream(None):
            assert loom.current_stream() == side
        with loom.StreamContext(other):
            assert loom.current_device() == 1
            assert loom.current_stream() == other
        assert (loom.current_device(), loom.current_stream()) == (0, side)
        assert not side.query()
    assert loom.default_stream().query()
    gate.open()
    side.synchronize()
    assert y.sum() == 8
    loom.set_stream(other)
    assert loom.current_device() == 1
    assert loom.current_stream() == other
    loom.set_stream(loom.default_stream(1))
    loom.set_device(0)


@pytest.mark.seed(2, "Stream")
@pytest.mark.seed(3, "Stream/1", "Stream/2", "Stream/3", "Stream/4", "Stream.query/1")
@pytest.mark.seed(3, "Stream.synchronize/1")
@pytest.mark.exercises("torch.cuda.Stream", "torch.cuda.Stream.query", "torch.cuda.Stream.synchronize")
def test_stream(gate: Gate) -> None:
    with loom.device(1):
        assert [loom.Stream(device).device.index for device in (None, -1, 0, "loom:0")] == [1, 1, 0, 0]
    assert loom.Stream().priority == loom.Stream(priority=0).priority == 0
    assert loom.Stream(None, -1).priority == loom.Stream(priority=-5).priority == -1
    held, free = loom.Stream(), loom.Stream()
    gate.hold(held)
    total = torch.zeros(1, device="loom")
    free.wait_stream(loom.default_stream())
    with loom.stream(free):
        for value in (1, 10):  # in order: ((0 + 1) * 2 + 10) * 2
            total.add_(value).mul_(2)
    free.synchronize()
    assert free.query()
    assert total.item() == 24
    assert not held.query()
    opener = threading.Timer(0.05, gate.open)
    opener.start()
    held.synchronize()  # returns after the gate was opened
    assert held.query()
    opener.join()


@pytest.mark.seed(3, "Stream.record_event/1", "Stream.record_event/2")
@pytest.mark.seed(3, "Stream.wait_event/1", "Stream.wait_event/2")
@pytest.mark.seed(3, "Stream.wait_stream/1", "Stream.wait_stream/2")
@pytest.mark.exercises("torch.cuda.Stream.record_event", "torch.cuda.Stream.wait_event")
@pytest.mark.exercises("torch.cuda.Stream.wait_stream")
def test_streams_wait(gate: Gate) -> None:
    first, by_event, by_stream = loom.Stream(), loom.Stream(), loom.Stream(1)
    before = by_event.record_event()
    gate.hold(first)
    given = loom.Event()
    assert first.record_event(given) is given
    made = first.record_event()
    assert type(made) is loom.Event
    by_event.wait_event(given)
    by_stream.wait_stream(first)
    after = [by_event.record_event(), by_stream.record_event()]
    before.synchronize()
    assert not any(event.query() for event in (given, made, *after))  # and the caller is here
    gate.open()
    for event in after:
        event.synchronize()
    assert given.query()


@pytest.mark.seed(2, "Event")
@pytest.mark.seed(3, "Event/1", "Event/2", "Event/3", "Event/4", "Event.record/1", "Event.record/2")
@pytest.mark.seed(3, "Event.record/3", "Event.query/1")
@pytest.mark.exercises("torch.cuda.Event", "torch.cuda.Event.record", "torch.cuda.Event.query")
def test_event_belongs_to_the_device_it_is_recorded_on(gate: Gate) -> None:
    event = loom.Event()
    assert event.event_id == 0
    assert event.query()  # nothing was recorded
    with loom.device(1):
        side = loom.Stream()
        gate.hold(side)
        with loom.stream(side):
            event.record()
        assert event.event_id != 0
        assert event.device == torch.device("loom:1")
    for stream in (None, loom.current_stream(0)):
        with pytest.raises(RuntimeError, match="device"):
            event.record(stream)
    with loom.device(1), loom.stream(side), pytest.raises(RuntimeError, match="device"):
        event.record(loom.Stream(0))
    assert not event.query()
    waiting = loom.Stream(0)
    waiting.wait_event(event)
    assert not waiting.query()
    gate.open()
    waiting.synchronize()
    assert event.query()
    event.record(loom.Stream(1))
    event.synchronize()


@pytest.mark.seed(3, "Event.elapsed_time/1")
@pytest.mark.exercises("torch.cuda.Event.elapsed_time")
def test_elapsed_time() -> None:
    start, middle, end = (loom.Event(enable_timing=True) for _ in range(3))
    x = torch.ones(256, 256, device="loom")
    start.record()
    for _ in range(3):
        x @ x
    middle.record()
    x @ x
    end.record()
    end.synchronize()
    whole, first = start.elapsed_time(end), start.elapsed_time(middle)
    assert 0 < first < whole
    assert whole == pytest.approx(first + middle.elapsed_time(end))
    assert end.elapsed_time(start) == -whole
    assert whole < 60_000  # milliseconds, not microseconds
    with pytest.raises(ValueError, match="timing"):
        start.elapsed_time(loom.current_stream().record_event())


@pytest.mark.seed(3, "Event.synchronize/1", "Event.synchronize/2")
@pytest.mark.exercises("torch.cuda.Event.synchronize")
def test_synchronize_holds_the_caller(gate: Gate) -> None:
    side = loom.Stream()
    gate.hold(side)
    event = side.record_event()
    returned = threading.Event()

    def wait() -> None:
        event.synchronize()
        returned.set()

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    assert not returned.wait(0.05)
    gate.open()
    waiter.join(30)
    assert returned.is_set()
    assert event.query()


@pytest.mark.seed(2, "ExternalStream")
@pytest.mark.exercises("torch.cuda.ExternalStream", "torch.cuda.streams.ExternalStream")
def test_external_stream() -> None:
    side = loom.Stream(1)
    again = loom.ExternalStream(side.native_handle, device=1)
    assert again.device == side.device
    with loom.stream(again):
        assert loom.current_device() == 1
        x = torch.ones(3, device="loom") * 3
    side.synchronize()
    assert x.tolist() == [3, 3, 3]
    assert again.query()
