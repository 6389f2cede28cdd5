"""torch.loom.Stream and Event: CUDA's names and errors, and at home wherever PyTorch's own classes are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import torch_loom.device as loom
from torch_loom.errors import DeviceTypeError, InvalidDeviceError

PROGRAMS = Path(__file__).parent / "programs" / "streams"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner
    from tests.gate import Gate


@pytest.fixture(autouse=True)
def on_default_stream() -> Iterator[None]:
    yield
    assert loom.current_device() == 0
    for device in range(2):
        assert loom.current_stream(device) == loom.default_stream(device)


def test_classes_derive_from_pytorchs() -> None:
    assert issubclass(loom.Stream, torch.Stream)
    assert issubclass(loom.Event, torch.Event)
    stream, event = loom.Stream(), loom.Event()
    assert type(stream.record_event()) is loom.Event
    assert type(stream.record_event(event)) is loom.Event
    for made in (loom.current_stream(), loom.default_stream(), loom.current_stream("loom:1")):
        assert type(made) is loom.Stream


@pytest.mark.parametrize("device", [None, -1, -5, 0, "loom", "loom:0", torch.device("loom", 0)])
def test_device_of_a_new_stream(device: object) -> None:
    assert loom.Stream(device).device == torch.device("loom:0")  # type: ignore[arg-type]
    with loom.device(1):
        expected = 0 if isinstance(device, int) and device >= 0 else 1
        expected = 0 if str(device) == "loom:0" else expected
        assert loom.Stream(device=device).device.index == expected  # type: ignore[arg-type]
        assert loom.current_device() == 1


def test_streams_come_from_a_pool() -> None:
    ids = [loom.Stream().stream_id for _ in range(64)]
    assert len(set(ids)) == 32
    assert ids[:32] == ids[32:]
    assert 0 not in ids


def test_priorities() -> None:
    assert loom.Stream.priority_range() == (0, -1)
    for given, priority in ((0, 0), (-1, -1), (7, 0), (-7, -1)):
        assert loom.Stream(priority=given).priority == priority
    assert torch.Stream(device="loom", priority=-1) not in {loom.Stream() for _ in range(32)}
    assert loom.default_stream().priority == 0


def test_another_object_for_a_stream() -> None:
    stream = loom.Stream("loom:1", priority=-1)
    same = loom.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    plain = torch.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    assert stream == same == plain
    assert plain == stream
    assert len({stream, same, plain}) == 1
    assert stream != loom.Stream("loom:1")
    assert stream != loom.default_stream(1)
    assert stream != "loom:1"
    assert stream is not None
    assert same.priority == -1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"device": "cpu"}, DeviceTypeError, "Expected a loom device, but got: cpu"),
        ({"device": "loom:7"}, InvalidDeviceError, "Invalid device index 7"),
        ({"device": 7}, InvalidDeviceError, "Invalid device index 7"),
        ({"device": 1.5}, DeviceTypeError, "got float 1.5"),
        ({"priority": "high"}, TypeError, "'priority' must be int, not str"),
        ({"stream_id": 1}, TypeError, "got stream_id=1, device_index=None"),
        ({"device_index": 1}, TypeError, "got stream_id=None, device_index=1"),
        ({"stream_id": 99, "device_index": 0}, ValueError, "device 0 has no stream with id 99"),
        ({"stream_id": -1, "device_index": 0}, ValueError, "device 0 has no stream with id -1"),
        ({"stream_id": 0, "device_index": 7}, InvalidDeviceError, "Invalid device index 7"),
        ({"stream_id": 0, "device_index": 0, "device_type": 1}, DeviceTypeError, "but got 1"),
        ({"stream_id": "x", "device_index": 0}, TypeError, "must be int, not str"),
    ],
)
def test_streams_that_cannot_be_made(arguments: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        loom.Stream(**arguments)


def test_texts() -> None:
    stream, event = loom.Stream("loom:1"), loom.Event()
    assert repr(stream) == f"<torch.loom.Stream device=loom:1 stream_id={stream.stream_id}>"
    assert repr(event) == "<torch.loom.Event uninitialized>"
    event.record(stream)
    assert repr(event) == f"<torch.loom.Event {event.event_id:#x} device=loom:1>"


def test_choosing_a_stream() -> None:
    here, there = loom.Stream(), loom.Stream("loom:1")
    with loom.stream(here):
        assert loom.current_stream() == torch.accelerator.current_stream() == here
        with loom.stream(there):
            assert loom.current_device() == 1
            assert loom.current_stream() == there
            assert loom.current_stream(0) == here
            with pytest.raises(KeyError), loom.stream(here):
                raise KeyError
            assert loom.current_stream() == there
        assert loom.current_device() == 0
        assert loom.current_stream() == here
        with loom.stream(None):
            loom.set_stream(None)
            assert loom.current_stream(-1) == here
        assert loom.default_stream(-1) == loom.default_stream(0)
    torch.accelerator.set_stream(there)
    assert (loom.current_device(), loom.current_stream()) == (1, there)
    loom.set_stream(loom.default_stream(1))
    loom.set_stream(torch.Stream(stream_id=0, device_index=0, device_type=there.device_type))


def test_a_stream_is_a_context_manager() -> None:
    stream = loom.Stream("loom:1")
    with stream as entered:
        assert entered is stream
        assert loom.current_stream() == stream
        with stream, loom.Stream("loom:0"):
            assert loom.current_device() == 0
        assert loom.current_stream() == stream


def test_a_context_may_be_entered_again() -> None:
    context = loom.stream(loom.Stream())
    with context:
        with context:
            pass
        assert loom.current_stream() == context.stream
    assert loom.current_stream() == loom.default_stream()


def test_each_thread_has_its_own_current_stream() -> None:
    seen = []
    with loom.stream(loom.Stream()):
        thread = threading.Thread(target=lambda: seen.append(loom.current_stream()))
        thread.start()
        thread.join()
    assert seen == [loom.default_stream()]


@pytest.mark.parametrize("wrong", [3, "x", None, torch.device("loom"), object])
def test_wrong_types(wrong: object) -> None:
    stream, event, timed = loom.Stream(), loom.Event(), loom.Event(enable_timing=True)
    uses = [stream.wait_event, stream.wait_stream, timed.elapsed_time]
    if wrong is not None:
        uses += [stream.record_event, event.record, event.wait, loom.set_stream, loom.stream]
    for use in uses:
        with pytest.raises(TypeError, match=r"Expected a torch\.") as raised:
            use(wrong)  # type: ignore[arg-type]
        assert repr(wrong) in str(raised.value)


def test_streams_of_other_devices() -> None:
    other = torch.Stream("cpu")
    for use in (
        loom.Stream().wait_stream,
        loom.Event().record,
        loom.Event().wait,
        loom.set_stream,
        loom.stream,
    ):
        with pytest.raises(DeviceTypeError, match="Expected a stream of a loom device, but got one of cpu"):
            use(other)


def test_order(gate: Gate) -> None:
    first, second = loom.Stream(), loom.Stream("loom:1")
    gate.hold(first)
    event = first.record_event()
    second.wait_event(event)
    after = second.record_event()
    assert [event.query(), after.query(), first.query(), second.query()] == [False] * 4
    third = torch.Stream(device="loom:1")
    plain = torch.Event(device="loom")
    plain.record(first)
    plain.wait(third)
    assert not third.query()
    independent = loom.Stream()
    independent.wait_stream(second)
    assert not independent.query()
    assert loom.Stream().query()
    gate.open()
    after.synchronize()
    assert event.query()
    independent.synchronize()
    assert second.query()
    first.synchronize()
    third.synchronize()
    assert plain.query()


def test_recording_again_leaves_earlier_waits_alone(gate: Gate) -> None:
    held, waiting, event = loom.Stream(), loom.Stream(), loom.Event()
    event.record(loom.Stream())
    waiting.wait_event(event)
    gate.hold(held)
    event.record(held)
    assert waiting.query()
    assert not event.query()


def test_methods_without_a_stream_mean_the_current_one(gate: Gate) -> None:
    held, event = loom.Stream("loom:1"), loom.Event()
    gate.hold(held)
    with loom.stream(held):
        event.record()
    assert event.device == torch.device("loom:1")
    side = loom.Stream()
    with loom.stream(side):
        event.wait()
        loom.Event().wait()  # never recorded: nothing to wait for
    assert not side.query()


@pytest.mark.parametrize("synchronize", [loom.synchronize, torch.accelerator.synchronize])
def test_synchronising_a_device_waits_for_all_its_streams(gate: Gate, synchronize: object) -> None:
    assert callable(synchronize)
    streams = [loom.Stream() for _ in range(3)]
    for stream in streams:
        gate.hold(stream)
        gate.open()
    gate.hold(streams[0])
    for stream in streams[1:]:
        stream.wait_stream(streams[0])
    synchronize(1)
    assert not any(stream.query() for stream in streams)
    timer = threading.Timer(0.05, gate.open)
    timer.start()
    synchronize()
    assert all(stream.query() for stream in streams)
    timer.join()


def test_elapsed_time() -> None:
    stream = loom.Stream()
    work = torch.rand(256, 256, device="loom")
    events = [
        loom.Event(enable_timing=True),
        loom.Event(True),
        torch.Event(device="loom", enable_timing=True),
    ]
    with loom.stream(stream):
        events[0].record()
        torch.mm(work, work)
        events[1].record(stream)
        events[2].record()
    for event in events:
        event.synchronize()
    milliseconds = events[0].elapsed_time(events[1])
    assert type(milliseconds) is float
    assert 0 < milliseconds < 10_000
    assert events[0].elapsed_time(events[2]) >= milliseconds
    assert events[1].elapsed_time(events[0]) == -milliseconds
    assert events[0].elapsed_time(events[0]) == 0


def test_elapsed_time_is_refused(gate: Gate) -> None:
    start, end = loom.Event(enable_timing=True), loom.Event(enable_timing=True)
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    start.record()
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    for untimed in (loom.Event(), torch.Event(device="loom", enable_timing=False)):
        untimed.record()
        with pytest.raises(ValueError, match="enable_timing=True"):
            start.elapsed_time(untimed)
    stream = loom.Stream()
    gate.hold(stream)
    end.record(stream)
    with pytest.raises(RuntimeError, match="must be completed"):
        start.elapsed_time(end)
    there = loom.Event(enable_timing=True)
    there.record(loom.Stream("loom:1"))
    with pytest.raises(RuntimeError, match="of one device, but they were recorded on loom:0 and loom:1"):
        start.elapsed_time(there)


def test_an_event_stays_on_its_device() -> None:
    event = loom.Event()
    event.record(loom.Stream("loom:1"))
    with pytest.raises(RuntimeError, match="device index 1 does not match recording stream's device index 0"):
        event.record(loom.Stream("loom:0"))
    with pytest.raises(RuntimeError, match="device index 1 does not match recording stream's device index 0"):
        loom.Stream().record_event(event)
    loom.Stream("loom:0").wait_event(event)


def test_an_event_may_be_forgotten_while_pending(gate: Gate) -> None:
    held, waiting = loom.Stream(), loom.Stream()
    gate.hold(held)
    waiting.wait_event(held.record_event())
    waiting.wait_stream(held)
    assert not waiting.query()
    gate.open()
    waiting.synchronize()


@pytest.mark.slow
def test_another_device_name(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "another_device_name.py", {"TORCH_LOOM_DEVICE_NAME": "rbln"})


def test_leaving_a_stream_that_was_not_entered() -> None:
    stream = torch.loom.Stream()
    with pytest.raises(RuntimeError, match="is not the stream that was entered last"):
        stream.__exit__(None, None, None)
    with stream, stream:
        assert torch.loom.current_stream() == stream
    assert torch.loom.current_stream() == torch.loom.default_stream()


@pytest.mark.parametrize("view", [torch.Tensor.conj, torch._neg_view])
def test_recording_a_conjugate_or_negative_view_records_its_block(
    view: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    stream = torch.loom.Stream()
    x = torch.zeros(64, dtype=torch.complex64, device="loom").add(1)
    before = torch.loom.memory_allocated()
    for _ in range(50):
        view(x).record_stream(stream)
    assert torch.loom.memory_allocated() == before  # nothing was cloned
    assert torch.equal(x.cpu(), torch.ones(64, dtype=torch.complex64))
