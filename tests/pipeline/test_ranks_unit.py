"""What two ranks say to one another, with both of them in this process: no sockets between them."""

from __future__ import annotations

import importlib
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from torch_loom.errors import PipelineError, PipelineStoppedError, RankError, StageError
from torch_loom.pipeline import Lifeline, Pipeline, Stage, runs
from torch_loom.pipeline import ranks as ranks_module
from torch_loom.pipeline.message import Message, decode, encode
from torch_loom.pipeline.ranks import resolve
from torch_loom.pipeline.ranks.run import RankedRun
from torch_loom.pipeline.readers import GuardedQueue

SECONDS = 30
post_module = importlib.import_module("torch_loom.pipeline.ranks.post")  # also the name of a function


class Direct:
    """Stands for the connections of a rank: hands each message to the other rank at once."""

    world_size = 2

    def __init__(self, rank: int, others: dict[int, Direct]) -> None:
        self.rank, self.peers, self._others = rank, [1 - rank], others
        self._runs: dict[int, RankedRun] = {}
        self._early: list[Message] = []
        self._num_runs = 0
        self._lock = threading.RLock()
        others[rank] = self

    def next_run(self) -> int:
        self._num_runs += 1
        return self._num_runs

    def register(self, run: int, receiver: RankedRun) -> None:
        with self._lock:
            self._runs[run] = receiver
            early, self._early = self._early, []
            for message in early:
                self.take(message)

    def unregister(self, run: int) -> None:
        self._runs.pop(run, None)

    def send(self, rank: int, message: Message) -> None:
        self._others[rank].take(decode(*encode(message)))

    def take(self, message: Message) -> None:
        with self._lock:
            if message.run in self._runs:
                self._runs[message.run].receive(1 - self.rank, message)
            elif message.run > self._num_runs or not self._runs:
                self._early.append(message)


def pair() -> tuple[Any, Any]:
    others: dict[int, Direct] = {}
    return Direct(0, others), Direct(1, others)


def run_of(post: Any) -> RankedRun:
    return RankedRun(post, [0, 1], ["first", "last"], Lifeline())


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], Any]], list[Any]]:
    """Runs a program once for each rank, and returns what each returned or raised."""
    here = threading.local()
    for module in (runs, ranks_module):
        monkeypatch.setattr(module, "post", lambda: here.post)

    def run(program: Callable[[int], Any]) -> list[Any]:
        found: list[Any] = [None, None]

        def one(post: Any) -> None:
            here.post = post
            try:
                found[post.rank] = program(post.rank)
            except Exception as error:
                found[post.rank] = error

        threads = [threading.Thread(target=one, args=(post,), daemon=True) for post in pair()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive(), "a rank waits for ever"
        return found

    return run


def test_results_that_are_being_handed_over_are_not_lost_when_a_rank_leaves() -> None:
    """The readers of one queue end when its own entries are handed over, not when those of another are."""
    post, other_post = pair()
    here, there = run_of(post), run_of(other_post)
    results: queue.Queue[Any] = queue.Queue()
    empty: queue.Queue[Any] = queue.Queue()
    guards = [GuardedQueue(one, here.lifeline) for one in (results, empty)]
    for guard in guards:
        guard.add_writer()
    handing, may_go_on = threading.Event(), threading.Event()

    def slow(tensors: Any) -> None:
        handing.set()
        assert may_go_on.wait(SECONDS)
        guards[0].put(tensors)

    for run in (here, there):
        run.start()
    here.share("a", 1, slow, guards[0].end_writer, 4)
    here.share("b", 1, guards[1].put, guards[1].end_writer, 4)
    send = there.share("a", 1, lambda _: None, lambda _: None, 4)
    send((torch.ones(1),))
    assert handing.wait(SECONDS)
    there.end()
    with pytest.raises(PipelineStoppedError, match="rank 1"):
        empty.get(timeout=SECONDS)
    with pytest.raises(queue.Empty):
        results.get(block=False)
    may_go_on.set()
    assert results.get(timeout=SECONDS)[0].tolist() == [1]
    with pytest.raises(PipelineStoppedError, match="rank 1"):
        results.get(timeout=SECONDS)
    here.lifeline.check()  # the pipeline itself goes on


def test_a_queue_to_a_rank_that_has_left_is_closed() -> None:
    post, other_post = pair()
    here, there = run_of(post), run_of(other_post)
    here.start()
    there.end()
    box = here.outbox("late", 1, 1)
    box.put((torch.ones(1),))
    with pytest.raises(PipelineStoppedError, match="rank 1"):
        box.put((torch.ones(1),))


def test_a_start_that_fails_on_one_rank_fails_on_the_others(both: Any) -> None:
    class Unready(Stage):
        def prepare(self, training: bool) -> None:
            raise ValueError("no memory")

    def program(rank: int) -> Any:
        kind = Unready if rank == 1 else Stage
        pipeline = Pipeline([Stage("first", nn.Identity()), kind("last", nn.Identity())], ranks=[0, 1])
        outputs: queue.Queue[Any] = queue.Queue()
        try:
            pipeline.start(training=False, outputs=outputs)
            return outputs.get(timeout=SECONDS)
        finally:
            assert pipeline.shutdown()

    first, last = both(program)
    assert isinstance(first, StageError)
    assert isinstance(first, ValueError)
    assert "no memory" in str(first)
    assert type(last) is ValueError


def test_an_inline_backward_of_nothing_returns(both: Any) -> None:
    def program(_: int) -> Any:
        stages = [Stage("first", nn.Linear(1, 1)), Stage("forward x", nn.Linear(1, 1), loss=nn.MSELoss())]
        losses: queue.Queue[Any] = queue.Queue()
        with Pipeline(stages, ranks=[0, 1]) as pipeline:
            pipeline.start(training=True, losses=losses)
            pipeline.backward(0, inline=True)
            pipeline.push(torch.ones(1))
            pipeline.push_target(torch.zeros(1))
            pipeline.forward(1, inline=True)
            pipeline.backward(0, inline=True)
            gradients = pipeline.gradients()
            loss = losses.get(timeout=SECONDS)[0].item()
            pipeline.sync()
            return loss >= 0, [len(gradient) for gradient in gradients]

    assert both(program) == [(True, [2, 2])] * 2


@pytest.mark.parametrize("ranks", ["locale", ["a"], [0, 1]])
def test_ranks_that_are_none(monkeypatch: pytest.MonkeyPatch, ranks: Any) -> None:
    monkeypatch.setattr(ranks_module, "post", lambda: Direct(0, {}))
    with pytest.raises(PipelineError, match=str(ranks).strip("[]")):
        resolve(ranks, 3)


def test_a_process_group_without_other_processes() -> None:
    """The ranks of a plan or of a fake group would be waited for without end."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        assert resolve(None, 2) is None
        with pytest.raises(RankError, match="'fake' do not exist"):
            resolve([0, 1], 2)
    finally:
        dist.destroy_process_group()


def test_a_plan_of_many_ranks() -> None:
    import torch_loom

    with torch_loom.device.plan.dry_run() as plan:
        plan.world_size = 4
        assert resolve(None, 2) is None


def test_a_group_that_cannot_be_made_is_a_rank_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("no interface")

    monkeypatch.setattr(post_module, "_rendezvous", lambda: (None, 0, 1))
    monkeypatch.setattr(dist, "PrefixStore", lambda *_: None)
    monkeypatch.setattr(dist, "ProcessGroupGloo", refuse)
    with pytest.raises(RankError, match="no interface"):
        post_module.Post()


def test_a_fork_leaves_the_pipelines_of_its_parent_alone() -> None:
    with Pipeline([Stage("a", nn.Identity())]) as pipeline:
        pipeline.start(training=False)
        child = os.fork()
        if not child:
            os._exit(len(runs._running))
        assert os.waitpid(child, 0)[1] == 0
        assert pipeline in runs._running
