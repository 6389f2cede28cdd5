"""The contract of driver.h, sentence by sentence: kernels in place, and failures."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest
from contract import TIMEOUT_S, Chip, KernelError, Log, thread
from torch_loom._C_testing import driver


@pytest.mark.parametrize("inline", [True, False])
def test_destroy_stream_discards_a_failure(chip: Chip, inline: bool) -> None:
    """destroy_stream: A kept failure that no call has raised is discarded."""
    stream = chip.driver.create_stream(0, 0, inline)
    log = Log()
    try:
        log.submit(chip, stream, 0, KernelError("discarded"))
    except KernelError:
        assert chip.runs
    chip.driver.destroy_stream(stream)
    assert log.released == [0]


@pytest.mark.parametrize("inline", [True, False])
def test_a_failure_is_told_once(chip: Chip, inline: bool) -> None:
    """synchronize_stream: Blocks until everything submitted so far has finished or was dropped. Under
    kRaise it raises a kept failure that this depends on; under kKeep the failure stays kept.
    submit: An exception of a kernel that ran in the caller's thread leaves submit() itself; one on a
    worker is kept by the stream. What is queued behind it on that stream, or waits for an event recorded
    behind it, is dropped; other streams go on, unless failures are sticky. Once a kept failure was
    raised, what is submitted runs again, or is refused with Unusable where failures are sticky."""
    stream, log, told = chip.driver.create_stream(0, 0, inline), Log(), []

    def told_by(call: Callable[[], object], name: str) -> None:
        try:
            call()
        except KernelError:
            told.append(name)

    told_by(lambda: log.submit(chip, stream, "fails", KernelError("told once")), "submit")
    at_once = bool(told)
    told_by(lambda: log.submit(chip, stream, "behind"), "submit")
    told_by(lambda: chip.driver.synchronize_stream(stream), "synchronize")
    if not chip.is_sticky:
        told_by(lambda: chip.driver.synchronize_stream(stream), "synchronize")
    assert log.released == ["fails", "behind"]
    if not chip.runs:
        assert (told, log.ran) == ([], [])
        return
    assert told == ["submit" if at_once else "synchronize"]
    assert at_once or not inline
    assert log.ran == (["fails", "behind"] if at_once else ["fails"])
    if chip.is_sticky and not at_once:
        return
    log.submit(chip, stream, "later")
    chip.driver.synchronize_stream(stream)
    assert log.ran[-1] == "later"


class Failed:
    """A stream with a kept failure, and one that waits for an event behind it; each has dropped a kernel."""

    def __init__(self, chip: Chip) -> None:
        self.stream, self.waiting = (chip.driver.create_stream(0, 0, False) for _ in range(2))
        self.log, event, gate = Log(), chip.driver.create_event(), threading.Event()

        def fail() -> None:
            assert gate.wait(TIMEOUT_S)
            raise KernelError("kept")

        chip.driver.submit(self.stream, fail)
        self.log.submit(chip, self.stream, "behind")
        chip.driver.record_event(event, self.stream)
        chip.driver.wait_event(self.waiting, event)
        self.log.submit(chip, self.waiting, "waits")
        gate.set()


@contextlib.contextmanager
def refused(chip: Chip) -> Iterator[None]:
    """What follows a raised failure: it works again, or never again where failures are sticky."""
    if chip.is_sticky:
        with pytest.raises(driver.Unusable, match=r"until the process ends.*kept"):
            yield
    else:
        yield


def test_drain_keeps_a_failure(chip: Chip) -> None:
    """synchronize_stream: Blocks until everything submitted so far has finished or was dropped. Under
    kRaise it raises a kept failure that this depends on; under kKeep the failure stays kept."""
    if not chip.queues:
        return
    failed = Failed(chip)
    for stream in (failed.stream, failed.waiting, failed.stream):
        chip.driver.synchronize_stream(stream, driver.OnFailure.KEEP)
        assert chip.driver.query_stream(stream)
    assert (failed.log.ran, sorted(failed.log.released)) == ([], ["behind", "waits"])
    with pytest.raises(KernelError, match="kept"):
        chip.driver.synchronize_stream(failed.waiting)
    for stream in (failed.stream, failed.waiting):
        with refused(chip):
            chip.driver.synchronize_stream(stream)
        chip.driver.synchronize_stream(stream, driver.OnFailure.KEEP)


def test_drain_blocks(chip: Chip) -> None:
    """synchronize_stream: Blocks until everything submitted so far has finished or was dropped. Under
    kRaise it raises a kept failure that this depends on; under kKeep the failure stays kept."""
    order: list[str] = []
    stream = chip.driver.create_stream(0, 0, False)
    with contextlib.ExitStack() as drained, chip.busy(stream, at_end=lambda: order.append("work")):

        def drain() -> None:
            chip.driver.synchronize_stream(stream, driver.OnFailure.KEEP)
            order.append("drained")

        drained.enter_context(thread(drain))
    chip.driver.synchronize_stream(stream)
    assert order[-1] == "drained"


def test_runs_in_place(chip: Chip) -> None:
    """runs_in_place: True when a kernel submitted now would be called in the caller's thread before submit()
    returns."""
    inline, side = (chip.driver.create_stream(0, 0, is_inline) for is_inline in (True, False))
    answers: list[bool] = []
    assert chip.driver.runs_in_place(inline)
    assert chip.driver.runs_in_place(side) is not chip.queues
    chip.driver.submit(side, lambda: answers.append(chip.driver.runs_in_place(side)))
    chip.driver.synchronize_stream(side)
    assert answers == ([True] if chip.runs else [])
    assert chip.driver.query_stream(side)
    event = chip.driver.create_event()
    with chip.busy(side):
        chip.driver.record_event(event, side)
        chip.driver.wait_event(inline, event)
        assert chip.driver.runs_in_place(inline) is not chip.queues
    assert chip.driver.runs_in_place(inline)


@pytest.mark.parametrize("inline", [True, False])
def test_in_place(chip: Chip, inline: bool) -> None:
    """Kernel: `in_place`: `run` is called in the caller's thread before submit() returns, in stream order; a
    kept failure of the stream is raised instead."""
    stream, slow, event = (
        chip.driver.create_stream(0, 0, inline),
        chip.driver.create_stream(0, 0, False),
        chip.driver.create_event(),
    )
    log, threads = Log(), []
    with contextlib.ExitStack() as submitted, chip.busy(slow, at_end=lambda: log.ran.append("slow")):
        chip.driver.record_event(event, slow)
        chip.driver.wait_event(stream, event)
        submitted.enter_context(chip.behind(lambda: log.submit(chip, stream, "pending")))
        submitted.enter_context(thread(lambda: log.submit(chip, stream, "elsewhere", in_place=True)))
    assert sorted(log.ran) == (["elsewhere", "pending", "slow"] if chip.runs else [])
    chip.driver.submit(stream, lambda: threads.append(threading.get_ident()), in_place=True)
    assert threads == ([threading.get_ident()] if chip.runs else [])
    assert log.ran[:1] == (["slow"] if chip.runs else [])


@pytest.mark.parametrize("which", ["stream", "waiting"])
def test_in_place_raises_instead(chip: Chip, which: str) -> None:
    """Kernel: `in_place`: `run` is called in the caller's thread before submit() returns, in stream order; a
    kept failure of the stream is raised instead."""
    if not chip.queues:
        return
    failed = Failed(chip)
    stream = getattr(failed, which)
    with pytest.raises(KernelError, match="kept"):
        failed.log.submit(chip, stream, "instead", in_place=True)
    assert failed.log.ran == []
    with refused(chip):
        failed.log.submit(chip, stream, "again", in_place=True)
    assert failed.log.ran == ([] if chip.is_sticky else ["again"])
    # The two streams drop their kernels each in its own time.
    dropped = "behind" if which == "stream" else "waits"
    of_this_stream = [name for name in failed.log.released if name in (dropped, "instead", "again")]
    assert of_this_stream == [dropped, "instead", "again"]


@pytest.mark.parametrize("which", ["stream", "waiting"])
def test_copy_of_pageable_memory_raises(chip: Chip, which: str) -> None:
    """copy: Pageable memory is read or written before copy() returns, and a kept failure of the stream is
    raised instead."""
    if not chip.queues:
        return
    device, target = chip.buffer("device0", b"device"), chip.buffer("pageable", b"......")
    failed = Failed(chip)
    stream = getattr(failed, which)
    with pytest.raises(KernelError, match="kept"):
        chip.driver.copy(stream, target.address, device.address, 6)
    assert target.read() == b"......"
    with refused(chip):
        chip.driver.copy(stream, target.address, device.address, 6)
    assert target.read() == (b"......" if chip.is_sticky else b"device")


def test_what_a_failure_drops(chip: Chip) -> None:
    """submit: What is queued behind it on that stream, or waits for an event recorded behind it, is dropped;
    other streams go on, unless failures are sticky. Once a kept failure was raised, what is submitted runs
    again, or is refused with Unusable where failures are sticky."""
    if not chip.queues or chip.is_sticky:
        return
    failed, other = Failed(chip), chip.driver.create_stream(0, 0, False)
    failed.log.submit(chip, other, "other")
    chip.driver.synchronize_stream(other)
    chip.driver.synchronize_stream(failed.waiting, driver.OnFailure.KEEP)
    failed.log.submit(chip, failed.waiting, "before the raise")
    with pytest.raises(KernelError, match="kept"):
        chip.driver.synchronize_stream(failed.stream)
    for stream in (failed.stream, failed.waiting):
        failed.log.submit(chip, stream, "after the raise")
        chip.driver.synchronize_stream(stream)
    assert failed.log.ran == ["other", "after the raise", "after the raise"]
    assert len(failed.log.released) == 6


def test_a_sticky_failure(chip: Chip) -> None:
    """submit: What is queued behind it on that stream, or waits for an event recorded behind it, is dropped;
    other streams go on, unless failures are sticky. Once a kept failure was raised, what is submitted runs
    again, or is refused with Unusable where failures are sticky."""
    if not chip.queues or not chip.is_sticky:
        return
    kept, pinned = chip.driver.allocate(1, 8), chip.buffer("pinned", b"text")
    chip.driver.write(kept, b"contents")
    other, event = chip.driver.create_stream(1), chip.driver.create_event()
    failed = Failed(chip)
    chip.driver.synchronize_stream(failed.stream, driver.OnFailure.KEEP)
    # Not raised yet: dropped, on whatever stream.
    failed.log.submit(chip, other, "dropped")
    chip.driver.copy(other, pinned.address, kept, 4)
    chip.driver.fill(other, kept, 0, 8)
    assert not chip.driver.runs_in_place(other)
    with pytest.raises(KernelError, match="kept"):
        chip.driver.synchronize_stream(other)
    for call in (
        lambda: failed.log.submit(chip, other, "refused"),
        lambda: chip.driver.copy(other, pinned.address, kept, 4),
        lambda: chip.driver.fill(other, kept, 0, 8),
        lambda: chip.driver.synchronize_stream(chip.driver.create_stream(1)),
    ):
        with refused(chip):
            call()
    assert failed.log.ran == []
    # The worker of another stream releases what waited there at a moment of its own.
    assert [name for name in failed.log.released if name in ("dropped", "refused")] == ["dropped", "refused"]
    # What the program holds can be looked at and let go of.
    assert (chip.driver.read(kept, 8), pinned.read()) == (b"contents", b"text")
    chip.driver.record_event(event, other)
    chip.driver.wait_event(failed.stream, event)
    assert chip.driver.query_event(event)
    assert chip.driver.query_stream(failed.stream)
    chip.driver.destroy_event(event)
    for stream in (other, failed.stream, failed.waiting):
        chip.driver.destroy_stream(stream)
    chip.driver.deallocate(kept)
    assert chip.used_bytes(1) == 0


def test_what_fails_at_once_is_not_sticky(chip: Chip) -> None:
    """submit: An exception of a kernel that ran in the caller's thread leaves submit() itself; one on a
    worker is kept by the stream."""
    stream, log = chip.driver.create_stream(0), Log()
    for number in range(2):
        try:
            log.submit(chip, stream, number, KernelError("at once"), in_place=True)
        except KernelError:
            assert chip.runs
    log.submit(chip, stream, "works")
    chip.driver.synchronize_stream(stream)
    assert log.ran == ([0, 1, "works"] if chip.runs else [])
