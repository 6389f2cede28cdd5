"""What a stage's process is asked: late answers, answers that cannot be sent, lost training."""

from __future__ import annotations

import io
import multiprocessing
import os
import threading
import time
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from torch_loom.errors import PipelineError
from torch_loom.pipeline import Pipeline, ProcessStage
from torch_loom.pipeline.message import Message, encode
from torch_loom.pipeline.process import child
from torch_loom.pipeline.process import stage as stage_module
from torch_loom.pipeline.process.connection import Questions, receive, send


class Sparse(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to_sparse()


class ThreadProcess:
    """Stands for a process: what it would run runs in a thread of this one."""

    exitcode = None

    def __init__(self, target: Any, args: Any, **_: Any) -> None:
        # The program closes its copy of the other end once the process has one.
        args = (Connection(os.dup(args[0].fileno())), *args[1:]) if args else ()
        self._thread = threading.Thread(target=target, args=args, daemon=True)
        self.start, self.join, self.is_alive = self._thread.start, self._thread.join, self._thread.is_alive
        self.closed = False

    def close(self) -> None:
        self.closed = True


class ThreadContext:
    Pipe = staticmethod(multiprocessing.Pipe)
    Process: Any = ThreadProcess

    def get_start_method(self) -> str:
        return "spawn"


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> ThreadContext:
    plain = SimpleNamespace(signal=lambda *_: None, SIGINT=0, SIG_IGN=0)  # for the main thread alone
    monkeypatch.setattr(child, "signal", plain)
    monkeypatch.setattr(torch, "manual_seed", lambda _: None)
    return ThreadContext()


def test_an_answer_that_nobody_waited_for_is_dropped() -> None:
    ours, theirs = multiprocessing.Pipe()
    questions = Questions(ours)
    with pytest.raises(TimeoutError):
        questions.ask("forward", deadline=time.monotonic())
    send(theirs, encode(Message("late", receive(theirs).run)))
    answers = threading.Thread(target=lambda: send(theirs, encode(Message("right", receive(theirs).run))))
    answers.start()
    assert questions.ask("state").kind == "right"
    answers.join()


def test_an_answer_that_cannot_be_sent_is_an_error(context: ThreadContext) -> None:
    stage = ProcessStage("a", Sparse(), mp_context=context)
    with Pipeline([stage]) as pipeline:
        pipeline.start(training=False)
        pipeline.push(torch.ones(2, 2))
        pipeline.forward(1)
        with pytest.raises(PipelineError, match="make it dense"):
            pipeline.sync()


@pytest.mark.parametrize("how", ["failed", "unreadable", "other shapes"])
def test_a_shutdown_tells_what_is_lost(
    context: ThreadContext, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state(_: Any) -> torch.Tensor:
        if how == "failed":
            raise ValueError("no state")
        written = io.BytesIO()
        torch.save({"modules": [nn.Linear(3, 3).state_dict()], "optimizer": None}, written)
        data = b"?" if how == "unreadable" else written.getvalue()
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)

    monkeypatch.setattr(child, "state_bytes", state)
    stage = ProcessStage("learner", nn.Linear(1, 1), mp_context=context)
    pipeline = Pipeline([stage])
    pipeline.start(training=True)
    process = stage._process
    with pytest.warns(RuntimeWarning, match="'learner' do not have what its process has learned"):
        assert pipeline.shutdown()
    assert process.closed
    assert stage._process is None


def test_a_process_that_does_not_start(context: ThreadContext) -> None:
    class NotStarting(ThreadProcess):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.start = self._refuse

        def _refuse(self) -> None:
            raise OSError("too many processes")

    context.Process = NotStarting
    stage = ProcessStage("a", nn.Identity(), mp_context=context)
    pipeline = Pipeline([stage])
    with pytest.raises(OSError, match="too many processes"):
        pipeline.start(training=False)
    assert pipeline.shutdown()
    assert stage.lost() is None


def test_each_stage_and_start_has_a_seed_of_its_own(context: ThreadContext) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    stages = [ProcessStage(name, nn.Identity(), mp_context=context) for name in "ab"]
    seeds = [stage._seed() for stage in (*stages, *stages)]
    assert len(set(seeds)) == 4
    assert torch.equal(torch.get_rng_state(), before), "the program draws what it draws without processes"
    again = ProcessStage("a", nn.Identity(), mp_context=context)
    assert again._seed() == seeds[0]


def test_a_process_that_ended_says_so(context: ThreadContext) -> None:
    assert stage_module._ending(ThreadProcess(print, ())) == "has ended"
