"""A pipeline from its start to its shutdown: workers, queues, the first failure."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch

from torch_loom.errors import PipelineError, StageError
from torch_loom.pipeline.channel import Channel
from torch_loom.pipeline.commands import Command, CommandType, Reply
from torch_loom.pipeline.failure import Lifeline
from torch_loom.pipeline.links import Feed
from torch_loom.pipeline.ranks import RankedRun, Ranks, close, post, resolve, share_answers
from torch_loom.pipeline.readers import GuardedQueue
from torch_loom.pipeline.report import Report
from torch_loom.pipeline.stage import Stage
from torch_loom.pipeline.wiring import Convert, ConvertCheckpoint, Wiring
from torch_loom.pipeline.worker import Worker

SHUTDOWN_SECONDS = 8.0  # of the 10 that a shutdown may take; the rest is for the caller

R = TypeVar("R", bound="Runs")
_running: weakref.WeakSet[Runs] = weakref.WeakSet()


class Runs:
    """The stages of a pipeline, and their workers while it runs; ``Pipeline`` has the parameters."""

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        queue_entries: int = 1024,
        stage_queue_entries: int = 8,
        inputs_on_host: bool = True,
        convert: Convert | None = None,
        convert_checkpoint: ConvertCheckpoint | None = None,
        inputs: Channel[Feed] | None = None,
        targets: Channel[Feed] | None = None,
        ranks: Ranks = None,
    ) -> None:
        names = [stage.name for stage in stages]
        if not stages:
            raise PipelineError("a pipeline needs a stage or more")
        if len(set(names)) < len(names):
            raise PipelineError(f"stages of a pipeline need different names: {names}")
        self.stages = list(stages)
        self._entries = stage_queue_entries
        self._on_host = inputs_on_host
        self._convert = convert or list
        self._convert_checkpoint = convert_checkpoint or (lambda values: values)
        # An empty queue is false: ask for None.
        made = Channel[Feed](f"{names[0]}: inputs", queue_entries)
        self.inputs = made if inputs is None else inputs
        made = Channel[Feed](f"{names[-1]}: targets", queue_entries)
        self.targets = made if targets is None else targets
        self._queues = {self.inputs, self.targets}
        """Every queue that the program has pushed into; ``choose`` adds more."""
        self._ranks = resolve(ranks, len(stages))
        self._ranked: RankedRun | None = None
        self._lifeline: Lifeline | None = None
        self._pid = os.getpid()
        self._workers: dict[int, Worker] = {}  # by place; of the stages that are in this process
        self._training = False
        self._endless: list[threading.Event] = []
        self._num_forwards = 0
        self._has_endless = False

    @property
    def running(self) -> bool:
        """Whether the pipeline was started, and neither failed nor was shut down."""
        return self._lifeline is not None and not self._lifeline.ended

    @property
    def error(self) -> StageError | None:
        """The failure of a stage since the last start, or None."""
        return self._lifeline.error if self._lifeline is not None else None

    @property
    def training(self) -> bool:
        """Whether the pipeline was started for training."""
        return self._training

    def worker(self, place: int) -> Worker | None:
        """Return the worker of a stage in this process while the pipeline runs, or None."""
        return self._workers.get(place) if self.running else None

    @property
    def distributed(self) -> bool:
        """Whether the stages are mapped to the ranks of torch.distributed."""
        return self._ranks is not None

    def is_here(self, place: int) -> bool:
        """Whether a stage runs in this process."""
        return self._ranks is None or self._ranks[place] == post().rank

    def guard(self, target: Any) -> GuardedQueue:
        """Let failures of the running pipeline reach the readers of a queue, and return what writes to it.

        Raises:
            PipelineError: the pipeline was not started.
            QueueTypeError: a queue that errors cannot be passed through.
        """
        self._require(1)
        assert self._lifeline is not None
        return GuardedQueue.of(target, self._lifeline)

    def report(self) -> Report:
        """Return what the stages did when, since the last start; of other ranks what was done at a sync."""
        return Report({stage.name: tuple(stage.spans) for stage in self.stages})

    def start(
        self,
        training: bool,
        *,
        outputs: Any = None,
        losses: Any = None,
        checkpoints: Any = None,
        forward_taps: Sequence[Any] = (),
        backward_taps: Sequence[Any] = (),
        gradient_taps: Mapping[str, Any] | None = None,
        on_done: Callable[[tuple[torch.Tensor, ...]], None] | None = None,
    ) -> None:
        """Make ready and start a worker for each stage.

        Args:
            training: whether forwards keep what their backwards need.
            outputs, losses, checkpoints: the program's queues; an item is that of ``convert``, and for
                checkpoints a list with a dict of name to tensor for each stage.
            forward_taps: queues that also get what goes from each stage to the next, from the first stage on.
            backward_taps: queues that also get the gradients that go back, from the second stage on.
            gradient_taps: by stage, a queue for its incoming and outgoing gradients.
            on_done: called by the last stage's worker after each micro-batch, with its losses in training.

        Raises:
            PipelineError: it runs already, or there are more taps than links between stages.
            QueueTypeError: a queue that errors cannot be passed through.
        """
        if self.running:
            raise PipelineError("the pipeline runs already: shut it down before it is started anew")
        for stage in self.stages:
            if stage.left_behind is not None and not stage.left_behind.join(0):
                raise PipelineError(
                    f"stage {stage.name!r} is still within a module of the last run: wait for it, or make "
                    "the stage anew"
                )
            stage.left_behind = None
        num_links = len(self.stages) - 1
        if max(len(forward_taps), len(backward_taps)) > num_links:
            raise PipelineError(
                f"{len(forward_taps)} forward and {len(backward_taps)} backward queues were given for "
                f"{num_links} links between {len(self.stages)} stages"
            )
        lifeline = Lifeline()
        self._pid = os.getpid()
        self._training, self._num_forwards, self._has_endless = training, 0, False
        sinks = {
            name: GuardedQueue.of(target, lifeline)
            for name, target in (("outputs", outputs), ("losses", losses), ("checkpoints", checkpoints))
            if target is not None
        }
        ranked = self._ranked = None
        if self._ranks is not None:
            ranked = self._ranked = RankedRun(post(), self._ranks, [s.name for s in self.stages], lifeline)
        with self._told_to_ranks(lifeline):
            wiring = self._wiring = Wiring(self.stages, self._entries, lifeline, self._convert, ranked)
            wiring.link(self.inputs, self.targets, sinks, self._convert_checkpoint)
            wiring.tap(forward_taps, backward_taps, gradient_taps or {})
            last = self.stages[-1].links
            assert last is not None
            last.on_done = on_done
            for place, stage in enumerate(self.stages):
                stage.reset()
                stage.rank = None if self.is_here(place) or self._ranks is None else self._ranks[place]
            self._prepare(training)
        self.inputs.attach(lifeline)
        self.targets.attach(lifeline)
        workers = self._workers = {
            place: Worker(stage, place, len(self.stages), lifeline)
            for place, stage in enumerate(self.stages)
            if stage.rank is None
        }
        self._lifeline = lifeline
        lifeline.probe = lambda: _find_dead(workers.values(), lifeline)
        if ranked is not None:
            ranked.start()
        for worker in workers.values():
            worker.start()
        _running.add(self)

    def shutdown(self, timeout: float = SHUTDOWN_SECONDS, *, keep_queued: bool = False) -> bool:
        """End the workers; whether all ended within ``timeout`` seconds. Never raises, twice neither.

        What is queued for the pipeline is dropped unless ``keep_queued``. A RuntimeWarning names the stage
        whose process could not return what it has learned.
        """
        if self._pid != os.getpid():
            return True  # a fork has none of the workers, and those of its parent are not its own to end
        deadline = time.monotonic() + timeout
        if self._lifeline is not None:
            self._lifeline.stop()
            self._lifeline.probe = _nothing  # a program's queue must not keep the stages
        if self._ranked is not None:
            self._ranked.end()
            self._ranked = None
        self._cancel_endless()
        workers = self._workers.values()
        stuck = [worker for worker in workers if not _join(worker, (deadline + time.monotonic()) / 2)]
        for worker in stuck:
            worker.stage.kill()
        left = [worker for worker in stuck if not _join(worker, deadline)]
        for worker in left:
            worker.stage.left_behind = worker
        ended = not left
        self._workers = {}
        for channel in self._queues:
            if not keep_queued:
                channel.clear()
            channel.attach(None)
        problems = []
        for stage in self.stages:
            stage.links = None
            problems.append(stage.end(deadline))
            if ended:
                stage.reset_alive()
        _running.discard(self)
        for problem in problems:
            if problem is not None:
                warnings.warn(problem, RuntimeWarning, stacklevel=2)
        return ended

    def __enter__(self: R) -> R:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    @contextlib.contextmanager
    def _told_to_ranks(self, lifeline: Lifeline) -> Iterator[None]:
        """Let a start that fails here be the failure of the run on the other ranks: they have begun."""
        try:
            yield
        except BaseException as error:
            if self._ranked is not None:
                here = [stage.name for place, stage in enumerate(self.stages) if self.is_here(place)]
                lifeline.fail(", ".join(here) or f"rank {self._ranked.rank}", "start", error)
                self._ranked.end()
                self._ranked = None
            raise

    def _prepare(self, training: bool) -> None:
        try:
            for stage in self.stages:
                if stage.rank is None:
                    stage.prepare(training)
        except BaseException:
            for stage in self.stages:
                stage.end(time.monotonic() + 2)
            raise

    def _require(self, count: int) -> None:
        if count < 0:
            raise PipelineError(f"count is {count}; it is the number of micro-batches, or 0 for no end")
        if self._lifeline is None:
            raise PipelineError("the pipeline was not started: call start() first")
        if self._pid != os.getpid():
            raise PipelineError(
                f"the pipeline was started by process {self._pid}, and this is a fork of it, without its "
                "workers: make a pipeline here, or start processes by 'spawn'"
            )
        self._lifeline.check()

    def _send(self, make: Callable[[], Command]) -> None:
        for worker in self._workers.values():
            worker.commands.put(make())

    def _ask(self, kind: CommandType) -> list[Any]:
        self._require(1)
        assert self._lifeline is not None
        replies = {place: Reply(self._lifeline) for place in self._workers}
        for place, reply in replies.items():
            self._workers[place].commands.put(Command(kind, reply=reply))
        mine = {place: reply.wait() for place, reply in replies.items()}
        if self._ranked is not None:
            mine = share_answers(self._ranked, mine)
        return [mine[place] for place in range(len(self.stages))]

    def _endless_event(self, count: int) -> threading.Event | None:
        if count:
            return None
        event = threading.Event()
        self._endless.append(event)
        return event

    def _cancel_endless(self) -> None:
        for event in self._endless:
            event.set()
        if self._endless:
            self.inputs.discard_no_more()
            self.targets.discard_no_more()
        self._endless.clear()
        for channel in self._queues:
            channel.wake()


def _nothing() -> None:
    pass


def _find_dead(workers: Iterable[Worker], lifeline: Lifeline) -> None:
    for worker in workers:
        if lifeline.ended:
            return
        if (lost := worker.stage.lost()) is not None:
            lifeline.fail(worker.stage.name, "its process", lost)
        if worker.died:
            lifeline.fail(worker.stage.name, "its thread", PipelineError("the thread ended without an error"))


def _join(worker: Worker, deadline: float) -> bool:
    return worker.join(max(deadline - time.monotonic(), 0))


os.register_at_fork(after_in_child=_running.clear)  # the pipelines of a fork are the parent's to end


@atexit.register
def _shutdown_all() -> None:
    deadline = time.monotonic() + SHUTDOWN_SECONDS
    for pipeline in list(_running):
        pipeline.shutdown(max(deadline - time.monotonic(), 0.1))
    close()
