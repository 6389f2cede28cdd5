"""The contract of driver.h, sentence by sentence: what the program gives to a driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from contract import Chip, Log
from torch_loom._C_testing import clock, driver

WAITS: dict[str, Callable[[Chip, object, object], object]] = {
    "stream": lambda chip, stream, _: chip.driver.synchronize_stream(stream),
    "stream, keep": lambda chip, stream, _: chip.driver.synchronize_stream(stream, driver.OnFailure.KEEP),
    "event": lambda chip, _, event: chip.driver.synchronize_event(event),
}


class StopError(Exception):
    """What the program ends a wait with."""


@contextmanager
def checked_by(check: Callable[[], object]) -> Iterator[None]:
    own = threading.get_ident()
    # It is the process's: a thread that another test has left may be waiting, too.
    driver.set_wait_check(lambda: check() if threading.get_ident() == own else None)
    try:
        yield
    finally:
        driver.set_wait_check(None)


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_wait_may_be_ended(chip: Chip, wait: Callable[[Chip, object, object], object]) -> None:
    """synchronize_stream: While it blocks, the caller's thread calls Program::check_wait() ten times a second
    or more; what that throws ends the wait and leaves this, and the work goes on.

    synchronize_event: It calls Program::check_wait() as synchronize_stream() does."""
    stream, event, log = chip.driver.create_stream(0), chip.driver.create_event(), Log()
    callers: list[int] = []

    def check() -> None:
        callers.append(threading.get_ident())
        # Without a lock: the driver may be called.
        assert not chip.driver.query_stream(stream)
        if len(callers) == 3:
            raise StopError

    with chip.busy(stream, at_end=lambda: log.ran.append("busy")):
        chip.driver.record_event(event, stream)
        if not chip.runs:
            wait(chip, stream, event)  # nothing is ever pending
        else:
            with checked_by(check), pytest.raises(StopError):
                wait(chip, stream, event)
            assert not chip.driver.query_stream(stream)
            assert not chip.driver.query_event(event)
            assert log.ran == []
    wait(chip, stream, event)
    assert log.ran == (["busy"] if chip.runs else [])
    assert callers == ([threading.get_ident()] * 3 if chip.runs else [])


def test_events_are_timed_by_the_programs_clock(chip: Chip) -> None:
    """elapsed_ns: They are those of Program::now_ns()."""
    start, end, stream = chip.driver.create_event(), chip.driver.create_event(), chip.driver.create_stream(0)
    try:
        for event, time_ns in ((start, 1_000), (end, 4_500)):
            clock.set_time(time_ns)
            chip.driver.submit(stream, lambda: None)
            chip.driver.record_event(event, stream)
            chip.driver.synchronize_event(event)
    finally:
        clock.restore()
    assert chip.driver.elapsed_ns(start, end) == 3_500
