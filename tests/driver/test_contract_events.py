"""The contract of driver.h, sentence by sentence: events."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import pytest
from contract import TIMEOUT_S, Chip, Log, thread
from torch_loom._C_testing import driver

TAKES_AN_EVENT: dict[str, Callable[[Chip, object], object]] = {
    "record_event": lambda chip, event: chip.driver.record_event(event, chip.driver.create_stream(0)),
    "wait_event": lambda chip, event: chip.driver.wait_event(chip.driver.create_stream(0), event),
    "query_event": lambda chip, event: chip.driver.query_event(event),
    "synchronize_event": lambda chip, event: chip.driver.synchronize_event(event),
    "elapsed_ns, start": lambda chip, event: chip.driver.elapsed_ns(event, recorded(chip)),
    "elapsed_ns, end": lambda chip, event: chip.driver.elapsed_ns(recorded(chip), event),
}


def recorded(chip: Chip) -> object:
    event, stream = chip.driver.create_event(), chip.driver.create_stream(0)
    chip.driver.record_event(event, stream)
    chip.driver.synchronize_event(event)
    return event


@pytest.mark.parametrize("call", TAKES_AN_EVENT.values(), ids=TAKES_AN_EVENT)
def test_null_and_destroyed_events(chip: Chip, call: Callable[[Chip, object], object]) -> None:
    with pytest.raises(driver.InvalidArgument, match=r"(event|start|end) must not be null"):
        call(chip, None)
    event = recorded(chip)
    call(chip, event)
    chip.driver.destroy_event(event)
    with pytest.raises(driver.InvalidArgument, match="has been destroyed"):
        call(chip, event)


@pytest.mark.parametrize("timing", [True, False])
def test_a_new_event_is_finished(chip: Chip, timing: bool) -> None:
    """create_event: A new event counts as finished; the caller owns it.
    query_event: True when the version recorded last has finished, or none was recorded."""
    event, stream, log = chip.driver.create_event(timing), chip.driver.create_stream(0), Log()
    assert chip.driver.query_event(event)
    chip.driver.synchronize_event(event)
    chip.driver.wait_event(stream, event)
    log.submit(chip, stream, 0)
    chip.driver.synchronize_stream(stream)
    assert log.released == [0]
    chip.driver.destroy_event(event)


def test_destroy_a_pending_event(chip: Chip) -> None:
    """destroy_event: May be called while the event is pending: what waits for it still does. Null is a
    no-op."""
    chip.driver.destroy_event(None)
    event = chip.driver.create_event()
    slow, waiting = chip.driver.create_stream(0), chip.driver.create_stream(1, 0, False)
    log = Log()
    with contextlib.ExitStack() as submitted, chip.busy(slow, at_end=lambda: log.ran.append("before")):
        chip.driver.record_event(event, slow)
        chip.driver.wait_event(waiting, event)
        chip.driver.destroy_event(event)
        submitted.enter_context(chip.behind(lambda: log.submit(chip, waiting, "after")))
    chip.driver.synchronize_stream(waiting)
    assert log.ran == (["before", "after"] if chip.runs else [])
    assert log.released == ["after"]


def test_record_marks_the_point(chip: Chip) -> None:
    """record_event: Marks the point reached by the stream.
    query_event: True when the version recorded last has finished, or none was recorded. Does not block and
    reports no failure.
    record_event: Does not block."""
    before, after = chip.driver.create_event(), chip.driver.create_event()
    stream = chip.driver.create_stream(0)
    chip.driver.record_event(before, stream)
    with chip.busy(stream):
        chip.driver.record_event(after, stream)
        assert chip.driver.query_event(before)
        assert chip.driver.query_event(after) is not chip.runs
    assert chip.driver.query_event(after)


def test_record_in_a_kernel(chip: Chip) -> None:
    """record_event: Marks the point reached by the stream."""
    event, stream, answers = chip.driver.create_event(), chip.driver.create_stream(0), []

    def kernel() -> None:
        chip.driver.record_event(event, stream)
        answers.append(chip.driver.query_event(event))

    chip.driver.submit(stream, kernel)
    chip.driver.synchronize_stream(stream)
    assert answers == ([False] if chip.runs else [])
    assert chip.driver.query_event(event)


def kept_failure(chip: Chip) -> tuple[object, object]:
    """A stream, and an event recorded behind a kernel that fails on its worker."""
    stream, event = chip.driver.create_stream(0, 0, False), chip.driver.create_event()
    gate = threading.Event()

    def fail() -> None:
        assert gate.wait(TIMEOUT_S)
        raise KeyError("kept")

    chip.driver.submit(stream, fail)
    chip.driver.record_event(event, stream)
    gate.set()
    return stream, event


def test_asking_about_a_failed_event(chip: Chip) -> None:
    """query_event: True when the version recorded last has finished, or none was recorded. Does not block
    and reports no failure."""
    if chip.queues:
        stream, event = kept_failure(chip)
        chip.driver.synchronize_stream(stream, driver.OnFailure.KEEP)
        assert chip.driver.query_event(event)


def test_synchronize_a_failed_event(chip: Chip) -> None:
    """synchronize_event: Blocks until the version recorded last has finished; raises a kept failure that it
    depends on."""
    if chip.queues:
        unrelated = recorded(chip)
        stream, event = kept_failure(chip)
        chip.driver.synchronize_event(unrelated)
        with pytest.raises(KeyError, match="kept"):
            chip.driver.synchronize_event(event)
        for call in (
            lambda: chip.driver.synchronize_event(event),
            lambda: chip.driver.synchronize_stream(stream),
        ):
            if chip.is_sticky:
                with pytest.raises(driver.Unusable, match="kept"):
                    call()
            else:
                call()


def test_a_failed_kernel_reaches_its_event(chip: Chip) -> None:
    """record_event: Marks the point reached by the stream."""
    event, stream = chip.driver.create_event(), chip.driver.create_stream(0)

    def kernel() -> None:
        chip.driver.record_event(event, stream)
        raise KeyError

    try:
        chip.driver.submit(stream, kernel)
    except KeyError:
        assert chip.runs
    chip.driver.synchronize_event(event)


def test_recording_again_is_a_new_version(chip: Chip) -> None:
    """record_event: Recording again starts a new version; earlier waits keep theirs."""
    event = chip.driver.create_event()
    first, second, waiting = (chip.driver.create_stream(0, 0, False) for _ in range(3))
    log = Log()
    with chip.busy(second):
        with chip.busy(first):
            chip.driver.record_event(event, first)
            chip.driver.wait_event(waiting, event)
            chip.driver.record_event(event, second)
            assert chip.driver.query_stream(waiting) is not chip.runs
        chip.driver.synchronize_stream(first)
        # The first version has finished, the second has not: the wait was for the first.
        assert chip.driver.query_event(event) is not chip.runs
        chip.driver.synchronize_stream(waiting)
        log.submit(chip, waiting, "after the first")
        chip.driver.synchronize_stream(waiting)
        assert log.released == ["after the first"]
    chip.driver.synchronize_event(event)
    assert chip.driver.query_event(event)


def test_recording_again_does_not_release_earlier_waits(chip: Chip) -> None:
    """record_event: Recording again starts a new version; earlier waits keep theirs."""
    event = chip.driver.create_event()
    slow, idle, waiting = (chip.driver.create_stream(0) for _ in range(3))
    with chip.busy(slow):
        chip.driver.record_event(event, slow)
        chip.driver.wait_event(waiting, event)
        chip.driver.record_event(event, idle)
        assert chip.driver.query_event(event)
        assert chip.driver.query_stream(waiting) is not chip.runs
    assert chip.driver.query_stream(waiting)


@pytest.mark.parametrize("inline", [True, False])
def test_wait_event(chip: Chip, inline: bool) -> None:
    """wait_event: Later work of `stream` starts after the version recorded last at this moment. Does not
    block the caller."""
    event = chip.driver.create_event()
    slow, waiting = chip.driver.create_stream(0), chip.driver.create_stream(1, 0, inline)
    log = Log()
    with contextlib.ExitStack() as submitted, chip.busy(slow, at_end=lambda: log.ran.append("slow")):
        log.submit(chip, waiting, "earlier")
        chip.driver.synchronize_stream(waiting)
        chip.driver.record_event(event, slow)
        chip.driver.wait_event(waiting, event)
        submitted.enter_context(chip.behind(lambda: log.submit(chip, waiting, "later")))
    chip.driver.synchronize_stream(waiting)
    assert log.ran == (["earlier", "slow", "later"] if chip.runs else [])
    assert log.released == ["earlier", "later"]


def test_waits_are_passed_on(chip: Chip) -> None:
    """wait_event: Later work of `stream` starts after the version recorded last at this moment.
    record_event: Marks the point reached by the stream."""
    events = [chip.driver.create_event() for _ in range(3)]
    streams = [chip.driver.create_stream(device % 2) for device in range(4)]
    done = threading.Event()
    busy = chip.busy(streams[0])
    busy.__enter__()
    for event, source, target in zip(events, streams, streams[1:], strict=False):
        chip.driver.record_event(event, source)
        chip.driver.wait_event(target, event)
    assert chip.driver.query_event(events[-1]) is not chip.runs
    assert chip.driver.query_stream(streams[-1]) is not chip.runs
    with thread(lambda: (chip.driver.synchronize_stream(streams[-1]), done.set())):
        assert done.wait(0.05) is not chip.runs
        busy.__exit__(None, None, None)
    assert done.is_set()
    assert all(chip.driver.query_stream(stream) for stream in streams)
    assert chip.driver.elapsed_ns(events[0], events[-1]) >= 0


def test_synchronize_event(chip: Chip) -> None:
    """synchronize_event: Blocks until the version recorded last has finished; raises a kept failure that it
    depends on."""
    event, stream, done = chip.driver.create_event(), chip.driver.create_stream(0), threading.Event()
    busy = chip.busy(stream)
    busy.__enter__()
    chip.driver.record_event(event, stream)
    with thread(lambda: (chip.driver.synchronize_event(event), done.set())):
        assert done.wait(0.1) is not chip.runs
        busy.__exit__(None, None, None)
    assert done.is_set()


def test_elapsed(chip: Chip) -> None:
    """elapsed_ns: Nanoseconds between two finished timing events; negative when `end` came first."""
    start, end, stream = chip.driver.create_event(), chip.driver.create_event(), chip.driver.create_stream(0)
    chip.driver.record_event(start, stream)
    chip.driver.submit(stream, lambda: time.sleep(0.02))
    chip.driver.record_event(end, stream)
    chip.driver.synchronize_event(end)
    elapsed = chip.driver.elapsed_ns(start, end)
    assert (20e6 if chip.runs else 0) <= elapsed < 10e9
    assert chip.driver.elapsed_ns(end, start) == -elapsed
    assert chip.driver.elapsed_ns(start, start) == 0
    chip.driver.record_event(start, stream)
    chip.driver.synchronize_event(start)
    assert chip.driver.elapsed_ns(start, end) <= 0


def test_elapsed_refuses(chip: Chip) -> None:
    """elapsed_ns: Throws InvalidArgument for an event without timing or never recorded, NotReady for an
    unfinished one and for one recorded behind a failure."""
    good, stream = recorded(chip), chip.driver.create_stream(0)
    never, untimed = chip.driver.create_event(), chip.driver.create_event(timing=False)
    chip.driver.record_event(untimed, stream)
    for start, end, name in ((never, good, "start"), (good, never, "end")):
        with pytest.raises(driver.InvalidArgument, match=f"the {name} event was never recorded"):
            chip.driver.elapsed_ns(start, end)
    for start, end, name in ((untimed, good, "start"), (good, untimed, "end")):
        with pytest.raises(driver.InvalidArgument, match=f"the {name} event was created without timing"):
            chip.driver.elapsed_ns(start, end)


def test_elapsed_of_a_pending_event(chip: Chip) -> None:
    """elapsed_ns: Throws InvalidArgument for an event without timing or never recorded, NotReady for an
    unfinished one and for one recorded behind a failure."""
    good, pending, stream = recorded(chip), chip.driver.create_event(), chip.driver.create_stream(0)
    with chip.busy(stream):
        chip.driver.record_event(pending, stream)
        for start, end, name in ((pending, good, "start"), (good, pending, "end")):
            if chip.runs:
                with pytest.raises(driver.NotReady, match=f"the {name} event has not finished"):
                    chip.driver.elapsed_ns(start, end)
            else:
                chip.driver.elapsed_ns(start, end)
    chip.driver.synchronize_event(pending)
    assert chip.driver.elapsed_ns(good, pending) >= 0


def test_elapsed_of_a_failed_event(chip: Chip) -> None:
    """elapsed_ns: Throws InvalidArgument for an event without timing or never recorded, NotReady for an
    unfinished one and for one recorded behind a failure."""
    if chip.queues:
        good = recorded(chip)
        stream, event = kept_failure(chip)
        chip.driver.synchronize_stream(stream, driver.OnFailure.KEEP)
        with pytest.raises(driver.NotReady, match="the end event was recorded behind a failure"):
            chip.driver.elapsed_ns(good, event)


def test_events_from_8_threads(chip: Chip) -> None:
    """record_event: Recording again starts a new version; earlier waits keep theirs."""
    event = chip.driver.create_event()
    streams = [chip.driver.create_stream(0) for _ in range(8)]
    log = Log()

    def churn(number: int) -> None:
        for _ in range(100):
            log.submit(chip, streams[number], number)
            chip.driver.record_event(event, streams[number])
            chip.driver.wait_event(streams[(number + 1) % 8], event)
            chip.driver.query_event(event)
            chip.driver.synchronize_event(event)

    with thread(*(lambda number=number: churn(number) for number in range(8))):
        pass
    for stream in streams:
        chip.driver.synchronize_stream(stream)
        chip.driver.destroy_stream(stream)
    assert len(log.released) == 800
    chip.driver.destroy_event(event)
