"""What fails on a worker is raised once, where the user waits for it; what depended on it does not run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import torch_loom.device as loom

PROGRAMS = Path(__file__).parent / "programs" / "stream_failures"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

ROWS = torch.arange(12.0).reshape(3, 4)
OUTSIDE = 7

# What fails when an index is outside, the type of the error, the name of the op.
FAILING: list[tuple[Callable[[Tensor, Tensor], Tensor], type[Exception], str]] = [
    (lambda x, i: F.embedding(i, x), IndexError, "aten::embedding"),
    (lambda x, i: torch.index_select(x, 0, i), IndexError, "aten::index_select"),
    (lambda x, i: x[i], IndexError, "aten::index.Tensor"),
    (lambda x, i: torch.gather(x, 0, i[:, None]), RuntimeError, "aten::gather"),
    (lambda x, i: F.nll_loss(x[:2], i), IndexError, "aten::nll_loss_forward"),
    (lambda x, i: torch.zeros_like(x).index_add_(0, i, x[:2]), RuntimeError, "aten::index_add_"),
    (lambda x, i: torch.zeros_like(x).scatter_(0, i[:, None], 1.0), RuntimeError, "aten::scatter_.value"),
]
IDS = [name for _, _, name in FAILING]


class Side:
    """A side stream on which every op that a test uses has been seen, with operands that are ready."""

    def __init__(self) -> None:
        self.stream = loom.Stream()
        self.rows = ROWS.to("loom")
        self.good, self.bad = (torch.tensor([1, last], device="loom") for last in (2, OUTSIDE))
        self.kept = torch.zeros(3, 4, device="loom")
        with loom.stream(self.stream):
            for work, _, _ in FAILING:
                work(self.rows, self.good)
            torch.mul(self.rows, 2, out=self.kept)
            self.kept.zero_()
            self.stream.synchronize()

    def fail(self, work: Callable[[Tensor, Tensor], Tensor] = FAILING[0][0]) -> Tensor:
        """Queue an op that fails, and one behind it."""
        with loom.stream(self.stream):
            result = work(self.rows, self.bad)
            torch.mul(self.rows, 2, out=self.kept)
        return result

    def works(self) -> bool:
        with loom.stream(self.stream):
            torch.mul(self.rows, 3, out=self.kept)
            self.stream.synchronize()
        return torch.equal(self.kept.cpu(), ROWS * 3)


@pytest.fixture
def side() -> Iterator[Side]:
    side = Side()
    yield side
    loom.synchronize()
    assert side.works()


@pytest.mark.parametrize(("work", "error", "op"), FAILING, ids=IDS)
def test_type_op_and_line(
    side: Side, work: Callable[[Tensor, Tensor], Tensor], error: type[Exception], op: str
) -> None:
    side.fail(work)
    with pytest.raises(error) as raised:
        side.stream.synchronize()
    assert type(raised.value) is error
    text = str(raised.value)
    assert re.search(rf"\(raised by the queued op '{re.escape(op)}', issued at \S+:\d+\)", text), text
    side.stream.synchronize()
    assert not side.kept.any()


def test_line_is_the_callers(side: Side) -> None:
    with loom.stream(side.stream):
        line = FAILING[1][0].__code__.co_firstlineno
        FAILING[1][0](side.rows, side.bad)
    with pytest.raises(IndexError, match=rf"issued at .*{re.escape(__file__)}:{line}\)"):
        side.stream.synchronize()


# Calls that wait for what the side stream does.
WAITING: dict[str, Callable[[Side, Tensor], object]] = {
    "stream": lambda side, result: side.stream.synchronize(),
    "event": lambda side, result: side.stream.record_event().synchronize(),
    "device": lambda side, result: loom.synchronize(),
    "accelerator": lambda side, result: torch.accelerator.synchronize(),
    "cpu": lambda side, result: result.cpu(),
    "item": lambda side, result: result.sum().item(),
    "tolist": lambda side, result: result.tolist(),
    "str": lambda side, result: str(result),
    "copy to host": lambda side, result: torch.empty(2, 4).copy_(result),
    "copy from host": lambda side, result: side.kept.copy_(ROWS),
    "op sized by values": lambda side, result: result.masked_select(result > 0.5),
}


@pytest.mark.parametrize("wait", WAITING.values(), ids=WAITING)
def test_the_first_call_that_waits_raises(side: Side, wait: Callable[[Side, Tensor], object]) -> None:
    result = side.fail()
    with loom.stream(side.stream):
        with pytest.raises(IndexError, match="index out of range"):
            wait(side, result)
        side.stream.synchronize()
        assert side.stream.query()
    assert not side.kept.any(), "what was queued behind it ran"


def test_asking_raises_nothing(side: Side) -> None:
    side.fail()
    event = side.stream.record_event()
    while not event.query():
        pass
    side.stream.query()
    with pytest.raises(IndexError):
        event.synchronize()


def test_an_event_before_the_failure_is_fine(side: Side) -> None:
    event = side.stream.record_event()
    side.fail()
    event.synchronize()
    with pytest.raises(IndexError):
        side.stream.synchronize()


def test_who_waits_for_a_later_event_is_dropped_too(side: Side) -> None:
    other, bystander = loom.Stream(), loom.Stream()
    dropped, done = torch.zeros(3, 4, device="loom"), torch.zeros(3, 4, device="loom")
    loom.synchronize()
    side.fail()
    other.wait_stream(side.stream)
    with loom.stream(other):
        torch.mul(side.rows, 2, out=dropped)
    with loom.stream(bystander):
        torch.mul(side.rows, 2, out=done)
    bystander.synchronize()
    with pytest.raises(IndexError):
        other.synchronize()
    side.stream.synchronize()
    assert not dropped.any()
    torch.testing.assert_close(done.cpu(), ROWS * 2)
    with loom.stream(other):
        torch.mul(side.rows, 2, out=dropped)
        assert dropped.sum().item() == 132


def test_the_default_stream_may_be_the_one_that_waits(side: Side) -> None:
    result = side.fail()
    loom.current_stream().wait_stream(side.stream)
    with pytest.raises(IndexError):
        result.cpu()
    side.stream.synchronize()
    assert (side.rows + 1).sum().item() == 78


def test_two_streams_each_raise_their_own(side: Side) -> None:
    other = Side()
    side.fail()
    other.fail(FAILING[3][0])
    with pytest.raises(IndexError):
        side.stream.synchronize()
    with pytest.raises(RuntimeError, match="aten::gather"):
        other.stream.synchronize()


def test_backward_fails_where_it_is_waited_for(side: Side) -> None:
    table = ROWS.to("loom").requires_grad_()
    loom.synchronize()
    with loom.stream(side.stream):
        for index in (side.good, side.bad):
            table.grad = None
            F.embedding(index, table).sum().backward()
        with pytest.raises((IndexError, RuntimeError), match="aten::embedding"):
            side.stream.synchronize()


def test_out_of_memory_is_raised_at_the_call(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "out_of_memory_is_raised_at_the_call.py", {"TORCH_LOOM_MEMORY": "64MiB"})
