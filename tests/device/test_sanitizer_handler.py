"""The handler under PyTorch's name, which programs feed with launches of their own."""

from __future__ import annotations

import pytest

from torch_loom.device.sanitizer.cuda_names import EventHandler

FIRST, SECOND, THIRD = 1001, 1002, 1003
EVENT, TENSOR, OTHER = 2001, 1, 2


class Told:
    """Launches in a few words."""

    def __init__(self) -> None:
        self.handler = EventHandler()

    def errors(self, stream: int, reads: tuple[int, ...] = (), writes: tuple[int, ...] = ()) -> int:
        names = {address: [""] for address in reads + writes}
        return len(self.handler._handle_kernel_launch(stream, reads, writes, {}, "", names))


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.mark.exercises("torch.cuda._sanitizer.EventHandler")
def test_reads_do_not_race(told: Told) -> None:
    assert told.errors(FIRST, reads=(TENSOR,)) == told.errors(SECOND, reads=(TENSOR,)) == 0


def test_each_tensor_that_races_is_an_error(told: Told) -> None:
    assert told.errors(FIRST, reads=(TENSOR,), writes=(OTHER,)) == 0
    assert told.errors(SECOND, writes=(TENSOR, OTHER)) == 2


def test_an_event_orders_the_streams_that_wait_for_it(told: Told) -> None:
    assert told.errors(FIRST, writes=(TENSOR,)) == 0
    told.handler._handle_event_record(EVENT, FIRST)
    told.handler._handle_event_wait(EVENT, SECOND)
    assert told.errors(SECOND, reads=(TENSOR,)) == 0
    assert told.errors(THIRD, reads=(TENSOR,)) == 1


def test_an_event_that_is_made_again_orders_nothing(told: Told) -> None:
    assert told.errors(FIRST, writes=(TENSOR,)) == 0
    told.handler._handle_event_record(EVENT, FIRST)
    told.handler._handle_event_creation(EVENT)
    told.handler._handle_event_wait(EVENT, SECOND)
    assert told.errors(SECOND, reads=(TENSOR,)) == 1


def test_the_host_orders_what_it_waited_for(told: Told) -> None:
    assert told.errors(FIRST, writes=(TENSOR,)) == 0
    told.handler._handle_stream_synchronization(FIRST)
    assert told.errors(SECOND, writes=(TENSOR,)) == 0
    told.handler._handle_device_synchronization()
    assert told.errors(THIRD, writes=(TENSOR,)) == 0
    told.handler._handle_event_record(EVENT, THIRD)
    told.handler._handle_event_synchronization(EVENT)
    assert told.errors(FIRST, reads=(TENSOR,)) == 0
