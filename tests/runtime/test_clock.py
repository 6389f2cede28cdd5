"""The one clock: another source of time takes the place of the host's everywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from torch_loom._C_testing import clock, driver

SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def host_time() -> Iterator[None]:
    yield
    clock.restore()


def test_time_stands_until_it_is_set() -> None:
    clock.set_time(5 * SECOND)
    before = clock.now_ns(), clock.wall_ns(), clock.ticks()
    assert (clock.now_ns(), clock.wall_ns(), clock.ticks()) == before
    assert before[0] == 5 * SECOND
    clock.restore()
    assert abs(clock.now_ns() - time.monotonic_ns()) < 10 * SECOND
    assert abs(clock.wall_ns() - time.time_ns()) < 10 * SECOND


def test_wall_time_goes_on_with_the_source() -> None:
    clock.set_time(0)
    began = clock.wall_ns()
    assert abs(began - time.time_ns()) < 10 * SECOND
    assert clock.ticks() == 0
    clock.set_time(5 * SECOND)
    assert clock.wall_ns() == began + 5 * SECOND


def test_ticks_are_of_the_same_length() -> None:
    clock.set_time(3 * SECOND)
    assert clock.ticks() == pytest.approx(3 * clock.ticks_per_second(), rel=0.2)


@pytest.mark.parametrize("launch", [driver.Launch.AUTO, driver.Launch.BLOCKING, driver.Launch.CHAOS])
@pytest.mark.parametrize("name", driver.names())
def test_events_are_stamped_with_it(name: str, launch: object) -> None:
    chip = driver.create(name, 1, 2 << 20, launch)
    stream = chip.create_stream(0)
    start, end = chip.create_event(), chip.create_event()
    clock.set_time(7)
    chip.record_event(start, stream)
    chip.synchronize_event(start)
    clock.set_time(40 * SECOND)
    chip.record_event(end, stream)
    chip.synchronize_event(end)
    assert chip.elapsed_ns(start, end) == 40 * SECOND - 7
    assert chip.elapsed_ns(end, start) == 7 - 40 * SECOND
