"""The contract of driver.h, sentence by sentence: streams and work."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from contract import Chip, KernelError, Log, thread
from torch_loom._C_testing import driver

PLACES = ["device0", "device1", "pinned", "pageable"]
TAKES_A_STREAM: dict[str, Callable[[Chip, object], object]] = {
    "query_stream": lambda chip, stream: chip.driver.query_stream(stream),
    "synchronize_stream": lambda chip, stream: chip.driver.synchronize_stream(stream),
    "synchronize_stream, keep": lambda chip, stream: chip.driver.synchronize_stream(
        stream, driver.OnFailure.KEEP
    ),
    "submit": lambda chip, stream: chip.driver.submit(stream, lambda: None),
    "copy": lambda chip, stream: chip.driver.copy(stream, 0, 0, 0),
    "fill": lambda chip, stream: chip.driver.fill(stream, 0, 0, 0),
    "record_event": lambda chip, stream: chip.driver.record_event(chip.driver.create_event(), stream),
    "wait_event": lambda chip, stream: chip.driver.wait_event(stream, chip.driver.create_event()),
}


@pytest.mark.parametrize("call", TAKES_A_STREAM.values(), ids=TAKES_A_STREAM)
def test_null_and_destroyed_streams(chip: Chip, call: Callable[[Chip, object], object]) -> None:
    with pytest.raises(driver.InvalidArgument, match="stream must not be null"):
        call(chip, None)
    stream = chip.driver.create_stream(0)
    call(chip, stream)
    chip.driver.destroy_stream(stream)
    with pytest.raises(driver.InvalidArgument, match="has been destroyed"):
        call(chip, stream)


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("priority", [0, -1, 5])
def test_create_stream(chip: Chip, inline: bool, priority: int) -> None:
    """create_stream: A queue on one device; the caller owns it."""
    streams = [chip.driver.create_stream(device, priority, inline) for device in (0, 0, 1)]
    log = Log()
    for number, stream in enumerate(streams):
        log.submit(chip, stream, number)
        chip.driver.synchronize_stream(stream)
        chip.driver.destroy_stream(stream)
    assert log.ran == ([0, 1, 2] if chip.runs else [])
    assert log.released == [0, 1, 2]


def test_create_stream_starts_no_thread(chip: Chip) -> None:
    """create_stream: Starts no thread."""

    def num_threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    before = num_threads()
    streams = [chip.driver.create_stream(0, 0, inline) for inline in (True, False)]
    assert num_threads() == before
    chip.driver.submit(streams[0], lambda: None)
    assert num_threads() == before
    chip.driver.submit(streams[1], lambda: None)
    chip.driver.synchronize_stream(streams[1])
    assert num_threads() == before + chip.queues
    for stream in streams:
        chip.driver.destroy_stream(stream)
    assert num_threads() == before


def test_streams_are_not_ordered(chip: Chip) -> None:
    """create_stream: Work of different streams is not ordered unless events order it."""
    first, second = (chip.driver.create_stream(0, 0, False) for _ in range(2))
    log = Log()
    with chip.busy(first):
        log.submit(chip, second, "second")
        chip.driver.synchronize_stream(second)
        assert log.released == ["second"]
        assert chip.driver.query_stream(first) is not chip.runs


def test_destroy_stream_waits(chip: Chip) -> None:
    """destroy_stream: Waits for what is pending, then ends the stream."""
    stream = chip.driver.create_stream(0)
    destroyed = threading.Event()

    def destroy() -> None:
        chip.driver.destroy_stream(stream)
        destroyed.set()

    # Entered last, so left first: the kernel ends while the other thread waits for it.
    busy = chip.busy(stream)
    busy.__enter__()
    with thread(destroy):
        assert destroyed.wait(0.1) is not chip.runs
        busy.__exit__(None, None, None)
    assert destroyed.is_set()


def test_destroy_null_stream(chip: Chip) -> None:
    """destroy_stream: Null is a no-op."""
    chip.driver.destroy_stream(None)


def test_query_stream(chip: Chip) -> None:
    """query_stream: True when everything submitted has finished. Does not block and reports no failure."""
    stream = chip.driver.create_stream(0)
    assert chip.driver.query_stream(stream)
    with chip.busy(stream):
        assert chip.driver.query_stream(stream) is not chip.runs
    assert chip.driver.query_stream(stream)
    try:
        chip.driver.submit(stream, lambda: 1 / 0)
    except ZeroDivisionError:
        assert chip.runs
    assert chip.driver.query_stream(stream)


def test_query_stream_in_its_own_kernel(chip: Chip) -> None:
    """query_stream: True when everything submitted has finished."""
    stream, answers = chip.driver.create_stream(0), []
    chip.driver.submit(stream, lambda: answers.append(chip.driver.query_stream(stream)))
    chip.driver.synchronize_stream(stream)
    assert answers == ([False] if chip.runs else [])


def test_synchronize_stream_blocks(chip: Chip) -> None:
    """synchronize_stream: Blocks until everything submitted so far has finished or was dropped. Under
    kRaise it raises a kept failure that this depends on; under kKeep the failure stays kept."""
    stream = chip.driver.create_stream(0)
    done = threading.Event()
    busy = chip.busy(stream)
    busy.__enter__()
    with thread(lambda: (chip.driver.synchronize_stream(stream), done.set())):
        assert done.wait(0.1) is not chip.runs
        busy.__exit__(None, None, None)
    assert done.is_set()


def test_a_kernel_cannot_wait_for_itself(chip: Chip) -> None:
    """synchronize_stream: Blocks until everything submitted so far has finished or was dropped. Under
    kRaise it raises a kept failure that this depends on; under kKeep the failure stays kept."""
    stream = chip.driver.create_stream(0)
    if chip.runs:
        with pytest.raises(
            driver.InvalidArgument, match="a kernel must not wait for the stream that runs it"
        ):
            chip.driver.submit(stream, lambda: chip.driver.synchronize_stream(stream))
    else:
        chip.driver.submit(stream, lambda: chip.driver.synchronize_stream(stream))


@pytest.mark.long
def test_submit_waits_for_room(chip: Chip) -> None:
    """submit: Blocks only where very many commands are queued."""
    stream, log, num_queued = chip.driver.create_stream(0, 0, False), Log(), 20000
    submitted = 0

    def submit() -> None:
        nonlocal submitted
        for number in range(num_queued):
            log.submit(chip, stream, number)
            submitted += 1

    with contextlib.ExitStack() as submitting, chip.busy(stream):
        if chip.queues:
            for number in range(1000):
                log.submit(chip, stream, -1 - number)
        submitting.enter_context(thread(submit))
    chip.driver.synchronize_stream(stream)
    assert submitted == num_queued
    assert log.released[-num_queued:] == list(range(num_queued))


def test_submit_in_order(chip: Chip) -> None:
    """submit: Runs a kernel in stream order."""
    stream, log = chip.driver.create_stream(0), Log()
    for number in range(100):
        log.submit(chip, stream, number)
    chip.driver.synchronize_stream(stream)
    assert log.ran == (list(range(100)) if chip.runs else [])
    assert log.released == list(range(100))


def test_submit_from_8_threads(chip: Chip) -> None:
    """submit: Runs a kernel in stream order."""
    stream, log, running = chip.driver.create_stream(0), Log(), []

    def kernel(number: int) -> None:
        running.append(number)
        time.sleep(0.0005)
        assert running == [number], "two kernels of one stream ran at the same time"
        running.clear()
        log.ran.append(number)

    def submit(first: int) -> None:
        for number in range(first, first + 10):
            chip.driver.submit(
                stream,
                lambda number=number: kernel(number),
                lambda number=number: log.released.append(number),
            )

    with thread(*(lambda first=first: submit(first) for first in range(0, 80, 10))):
        pass
    chip.driver.synchronize_stream(stream)
    assert sorted(log.ran) == (list(range(80)) if chip.runs else [])
    assert len(log.released) == 80
    for first in range(0, 80, 10):
        mine = [number for number in log.ran if first <= number < first + 10]
        assert mine == sorted(mine), "what one thread submitted ran out of order"


def test_submit_inline(chip: Chip) -> None:
    """submit: An exception of a kernel that ran in the caller's thread leaves submit() itself; one on a
    worker is kept by the stream. What is queued behind it on that stream, or waits for an event recorded
    behind it, is dropped; other streams go on, unless failures are sticky. Once a kept failure was
    raised, what is submitted runs again, or is refused with Unusable where failures are sticky."""
    stream, threads = chip.driver.create_stream(0), []
    chip.driver.submit(stream, lambda: threads.append(threading.get_ident()))
    assert threads == ([threading.get_ident()] if chip.runs else [])
    log = Log()
    if chip.runs:
        with pytest.raises(KernelError, match="mine"):
            log.submit(chip, stream, 0, KernelError("mine"))
    else:
        log.submit(chip, stream, 0, KernelError("mine"))
    chip.driver.synchronize_stream(stream)
    assert log.released == [0]


def test_submit_in_a_kernel(chip: Chip) -> None:
    """submit: What a kernel submits to its own stream, in its own thread, is part of it."""
    one, other, log = chip.driver.create_stream(0), chip.driver.create_stream(0), Log()

    def kernel() -> None:
        log.submit(chip, one, "same stream")
        log.submit(chip, other, "other stream")

    chip.driver.submit(one, kernel)
    for stream in (one, other):
        chip.driver.synchronize_stream(stream)
    assert sorted(map(str, log.released)) == (["other stream", "same stream"] if chip.runs else [])


@pytest.mark.parametrize("inline", [True, False])
def test_release_is_called_once(chip: Chip, inline: bool) -> None:
    """Kernel: A unit of work. `run` is called with `context` and the stream it was submitted to, once.
    `release` is called exactly once: after `run` has returned or thrown, or when the kernel is dropped
    or refused. It does not throw, and may be null when `context` outlives the kernel's stay on the
    stream. `name` lives until then."""
    stream, log, order = chip.driver.create_stream(0, 0, inline), Log(), []
    chip.driver.submit(stream, lambda: order.append("run"), lambda: order.append("release"), "named")
    chip.driver.synchronize_stream(stream)
    assert order == (["run", "release"] if chip.runs else ["release"])
    for name, error in (("returns", None), ("throws", KernelError())):
        try:
            log.submit(chip, stream, name, error)
            chip.driver.synchronize_stream(stream)
        except KernelError:
            assert chip.runs
    with pytest.raises(driver.InvalidArgument, match="stream must not be null"):
        log.submit(chip, None, "refused")
    with pytest.raises(driver.InvalidArgument, match="run must not be null"):
        chip.driver.submit(stream, None, lambda: log.released.append("nothing to run"))
    assert log.released == ["returns", "throws", "refused", "nothing to run"]
    assert log.ran == (["returns", "throws"] if chip.runs else [])


@pytest.mark.parametrize("to", PLACES)
@pytest.mark.parametrize("from_", PLACES)
def test_copy(chip: Chip, from_: str, to: str) -> None:
    """copy: Copies bytes in stream order; either side is device, pinned or pageable memory."""
    stream, data = chip.driver.create_stream(0), bytes(range(256)) * 33
    source, target = chip.buffer(from_, data), chip.buffer(to, b"\xff" * len(data))
    chip.driver.copy(stream, target.address + 1, source.address + 3, len(data) - 5)
    chip.driver.synchronize_stream(stream)
    if chip.runs:
        assert target.read() == b"\xff" + data[3:-2] + b"\xff" * 4
    elif target.readable:
        assert target.read() == b"\xff" * len(data)
    if source.readable:
        assert source.read() == data


def test_copy_in_order(chip: Chip) -> None:
    """copy: Copies bytes in stream order; either side is device, pinned or pageable memory."""
    stream = chip.driver.create_stream(0)
    one, other = chip.buffer("pinned", b"old"), chip.buffer("device0", b"...")
    copies = [(other.address, one.address), (one.address, other.address)]
    with contextlib.ExitStack() as submitted, chip.busy(stream):
        submitted.enter_context(chip.behind(lambda: [chip.driver.copy(stream, *pair, 3) for pair in copies]))
        chip.driver.write(one.address, b"new")
    chip.driver.synchronize_stream(stream)
    assert one.read() == b"new"
    if chip.runs:
        assert other.read() == b"new"


@pytest.mark.parametrize("inline", [True, False])
def test_copy_of_pageable_memory(chip: Chip, inline: bool) -> None:
    """copy: Pageable memory is read or written before copy() returns, and a kept failure of the stream is
    raised instead."""
    stream = chip.driver.create_stream(0, 0, inline)
    source, device = chip.buffer("pageable", b"first"), chip.buffer("device0", b".....")
    target = chip.buffer("pageable", b".....")
    chip.driver.copy(stream, device.address, source.address, 5)
    source._kept.raw = b"later"
    chip.driver.copy(stream, target.address, device.address, 5)
    assert target.read() == (b"first" if chip.runs else b".....")


def test_copy_nothing(chip: Chip) -> None:
    """copy: Zero bytes is a no-op; overlapping ranges behave like memmove."""
    stream = chip.driver.create_stream(0)
    chip.driver.copy(stream, 0, 0, 0)
    chip.driver.copy(stream, 64, 2**64 - 1, 0)
    buffer = chip.buffer("pinned", b"data")
    for destination, source in ((0, buffer.address), (buffer.address, 0)):
        with pytest.raises(driver.InvalidArgument, match=r"copy: (source|destination) must not be null"):
            chip.driver.copy(stream, destination, source, 1)
    assert buffer.read() == b"data"


@pytest.mark.parametrize("where", ["device0", "pinned"])
@pytest.mark.parametrize(("to", "from_"), [(0, 7), (7, 0), (0, 0), (0, 500), (500, 0)])
def test_overlapping_copy(chip: Chip, where: str, to: int, from_: int) -> None:
    """copy: Zero bytes is a no-op; overlapping ranges behave like memmove."""
    data = bytes(number * 37 % 251 for number in range(1000))
    buffer = chip.buffer(where, data)
    stream = chip.driver.create_stream(0)
    chip.driver.copy(stream, buffer.address + to, buffer.address + from_, 500)
    chip.driver.synchronize_stream(stream)
    if chip.runs:
        assert buffer.read() == data[:to] + data[from_ : from_ + 500] + data[to + 500 :]
    elif buffer.readable:
        assert buffer.read() == data


@pytest.mark.parametrize("value", [0, 1, 255])
def test_fill(chip: Chip, value: int) -> None:
    """fill: Sets every byte of a device range in stream order."""
    stream, buffer = chip.driver.create_stream(0), chip.buffer("device0", b"x" * 100)
    chip.driver.fill(stream, buffer.address, 7, 100)
    chip.driver.fill(stream, buffer.address + 1, value, 98)
    chip.driver.fill(stream, buffer.address, 9, 0)
    chip.driver.fill(stream, 0, 9, 0)
    chip.driver.synchronize_stream(stream)
    if chip.runs:
        assert buffer.read() == b"\7" + bytes([value]) * 98 + b"\7"
    with pytest.raises(driver.InvalidArgument, match="fill: destination must not be null"):
        chip.driver.fill(stream, 0, 9, 1)


def test_fill_where_it_is_lacking() -> None:
    """fill: Sets every byte of a device range in stream order."""
    # Pinned memory stands in: what the null driver does to device memory cannot be seen.
    chip = Chip("null")
    stream, pinned = chip.driver.create_stream(0), chip.buffer("pinned", b"xxxx")
    chip.driver.fill(stream, pinned.address, 7, 4)
    assert pinned.read() == b"xxxx"
