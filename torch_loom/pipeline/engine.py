"""The engine: stages in a row, a worker each, micro-batches in flight."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from torch_loom.errors import PipelineError, StageError
from torch_loom.pipeline.channel import Channel
from torch_loom.pipeline.commands import Command, CommandType, Reply
from torch_loom.pipeline.failure import Lifeline
from torch_loom.pipeline.feeding import checked_inputs, store
from torch_loom.pipeline.ranks import RankedRun, Ranks, close, post, resolve, share_answers, share_spans
from torch_loom.pipeline.readers import GuardedQueue
from torch_loom.pipeline.report import Report
from torch_loom.pipeline.schedule import ScheduleName
from torch_loom.pipeline.stage import Feed, Stage
from torch_loom.pipeline.wiring import Convert, ConvertCheckpoint, Wiring
from torch_loom.pipeline.worker import Worker

__all__ = ["Pipeline"]

SHUTDOWN_SECONDS = 8.0  # of the 10 that a shutdown may take; the rest is for whoever calls it

_CPU = torch.device("cpu")
_ENDLESS = 1 << 60  # entries
_running: weakref.WeakSet[Pipeline] = weakref.WeakSet()


class Pipeline:
    """Stages in a row, each with a worker, joined by bounded queues.

    A run is: ``start``, ``push`` micro-batches (before or after), ``forward`` / ``backward`` / ``step`` or
    ``train``, read the queues, ``shutdown``. Commands return at once; ``sync`` waits for them. The first
    error of any worker is raised by every call and every queue that waits for the pipeline.

    Args:
        stages: in the order of the data; names differ.
        queue_entries: capacity of the queues of inputs and targets, in micro-batches.
        stage_queue_entries: capacity of each queue between two stages.
        inputs_on_host: keep pushed inputs in host memory until their stage takes them; otherwise they are in
            device memory at once.
        convert: makes an item of an output or loss queue of its tensors on the host; a list if None.
        convert_checkpoint: makes a stage's part of a checkpoint of its parameters by name.
        inputs, targets: queues that exist already, in place of new ones.
        ranks: the process of each stage, where several run this program; ``"local"``: all stages in this one.
            Default: under torchrun (or an initialized torch.distributed) the stages are spread in order.
            All processes make the same calls, and all of them read the same outputs, losses and checkpoints.

    Raises:
        PipelineError: no stage, or two of one name.
    """

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
        self._ranks = resolve(ranks, len(stages))
        self._ranked: RankedRun | None = None
        self._lifeline: Lifeline | None = None
        self._workers: dict[int, Worker] = {}  # by place; of the stages that are in this process
        self._training = False
        self._endless: list[threading.Event] = []
        self._num_forwards = 0
        self._has_endless = False

    # State

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

    # Start and end

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
        self._training, self._num_forwards, self._has_endless = training, 0, False
        sinks = {
            name: GuardedQueue.of(target, lifeline)
            for name, target in (("outputs", outputs), ("losses", losses), ("checkpoints", checkpoints))
            if target is not None
        }
        ranked = self._ranked = None
        if self._ranks is not None:
            ranked = self._ranked = RankedRun(post(), self._ranks, [s.name for s in self.stages], lifeline)
        wiring = self._wiring = Wiring(self.stages, self._entries, lifeline, self._convert, ranked)
        wiring.link(self.inputs, self.targets, sinks, self._convert_checkpoint)
        wiring.tap(forward_taps, backward_taps, gradient_taps or {})
        last = self.stages[-1].links
        assert last is not None
        last.on_done = on_done
        for place, stage in enumerate(self.stages):
            stage.reset()
            stage.rank = None if self.is_here(place) or self._ranks is None else self._ranks[place]
            if stage.rank is None:
                stage.prepare(training)
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

        What is queued for the pipeline is dropped unless ``keep_queued``.
        """
        deadline = time.monotonic() + timeout
        if self._lifeline is not None:
            self._lifeline.stop()
            self._lifeline.probe = _nothing  # a program's queue must not keep the stages
        if self._ranked is not None:
            self._ranked.end()
            self._ranked = None
        self._cancel_endless()
        left = [worker for worker in self._workers.values() if not _join(worker, deadline)]
        for worker in left:
            worker.stage.left_behind = worker
        ended = not left
        self._workers = {}
        for channel in (self.inputs, self.targets):
            if not keep_queued:
                channel.clear()
            channel.attach(None)
        for stage in self.stages:
            stage.links = None
            if ended:
                stage.reset_alive()
        _running.discard(self)
        return ended

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # Data

    def push(self, *tensors: torch.Tensor, **named: torch.Tensor) -> None:
        """Queue the inputs of one micro-batch, in order or by name; waits while the queue is full.

        Raises:
            TypeError: something else than tensors.
            QueueFullError: the queue is full, and nothing runs that would drain it.
            StageError: the pipeline failed.
        """
        self._push(self.inputs, self.stages[0].device, tensors, named)

    def push_target(self, *tensors: torch.Tensor) -> None:
        """Queue the targets of one micro-batch; waits and raises as ``push``."""
        self._push(self.targets, self.stages[-1].device, tensors, {})

    # Commands

    def forward(self, count: int = 1, *, inline: bool = False, outputs: Any = None) -> None:
        """Run ``count`` micro-batches forward; 0 goes on until ``end_endless``, ``start`` or ``shutdown``.

        With ``inline`` in the calling thread: at most the micro-batches that wait, and done on return.
        ``outputs`` is the queue for the outputs of these, in place of the one given to ``start``.

        Raises:
            PipelineError: the pipeline does not run, or count is negative.
        """
        self._require(count)
        assert self._lifeline is not None
        sink = None if outputs is None else self._wiring.sender(outputs)
        if inline:
            self._ask(CommandType.SYNC)  # what waits now is what earlier commands leave
            ready = min(count or len(self.inputs), len(self.inputs))
            self._check_targets(ready)
            if self._ranked is not None and ready:
                self.forward(ready, outputs=outputs)
                self._ask(CommandType.SYNC)
            if self._ranked is not None:
                return
            for _ in range(ready):
                self._inline(Command(CommandType.RUN_FORWARD, 1, training=self._training, on_output=sink))
            self._num_forwards += ready
            return
        cancel = self._endless_event(count)
        self._discard_twins(count or _ENDLESS)
        self._num_forwards += count
        self._has_endless |= count == 0
        self._send(
            lambda: Command(
                CommandType.RUN_FORWARD, count, training=self._training, cancel=cancel, on_output=sink
            )
        )

    def backward(self, count: int = 1, *, zero_grad: bool = False, inline: bool = False) -> None:
        """Run ``count`` backwards, of the forwards that came first; 0: of all, and then waits as ``forward``.

        Raises:
            PipelineError: the pipeline does not train, or there were fewer forwards.
        """
        self._require(count)
        if not self._training:
            raise PipelineError("the pipeline was started for inference: start it with training=True")
        if count > self._num_forwards and not self._has_endless:
            raise PipelineError(
                f"{count} backwards were asked for, and {self._num_forwards} forwards wait for theirs"
            )
        if inline and self._ranked is not None:
            self.backward(count or self._num_forwards, zero_grad=zero_grad)
            self._ask(CommandType.SYNC)
            return
        if inline:
            number = count or self._num_forwards
            for place in range(number):
                first = zero_grad and place == 0
                self._inline(Command(CommandType.RUN_BACKWARD, 1, zero_grad=first), reverse=True)
            self._num_forwards -= number
            return
        cancel = self._endless_event(count)
        self._num_forwards = max(0, self._num_forwards - count) if count else 0
        self._send(lambda: Command(CommandType.RUN_BACKWARD, count, zero_grad=zero_grad, cancel=cancel))

    def step(self, *, checkpoint: bool = False, inline: bool = False) -> None:
        """Step the optimizers; with ``checkpoint`` the parameters go to the checkpoint queue."""
        self._simple(Command(CommandType.RUN_OPTIMIZER, checkpoint=checkpoint), inline)

    def step_schedulers(self, *, inline: bool = False) -> None:
        """Step the learning-rate schedulers."""
        self._simple(Command(CommandType.RUN_SCHEDULERS), inline)

    def train(
        self,
        *,
        epochs: int = 1,
        steps: int = 1,
        accumulation_steps: int = 1,
        microbatches: int = 1,
        checkpoint_interval: int = 0,
        schedule: ScheduleName = "1f1b",
    ) -> None:
        """Train: ``steps`` optimizer steps an epoch, each over ``accumulation_steps`` times ``microbatches``.

        Schedulers step once an epoch. Checkpoints are taken every ``checkpoint_interval`` steps (0: never),
        and the last one is the last state.

        Raises:
            PipelineError: the pipeline does not train, or a count below 1.
        """
        counts = {
            "epochs": epochs,
            "steps": steps,
            "accumulation_steps": accumulation_steps,
            "microbatches": microbatches,
        }
        for name, value in counts.items():
            if value < 1:
                raise PipelineError(f"{name} is {value}; a training run needs 1 or more")
        if checkpoint_interval < 0:
            raise PipelineError(f"checkpoint_interval is {checkpoint_interval}; it is 0 (never) or more")
        self._require(1)
        if not self._training:
            raise PipelineError("the pipeline was started for inference: start it with training=True")
        self._discard_twins(epochs * steps * accumulation_steps * microbatches)
        self._send(
            lambda: Command(
                CommandType.RUN_TRAINING,
                microbatches,
                training=True,
                schedule=schedule,
                epochs=epochs,
                steps=steps,
                accumulation_steps=accumulation_steps,
                checkpoint_interval=checkpoint_interval,
            )
        )

    def end_endless(self) -> None:
        """End runs without a count, in the order of the data; what is queued stays for the next run."""
        self._cancel_endless()

    def checkpoint(self) -> list[dict[str, torch.Tensor]]:
        """Return copies of each stage's parameters on the host, when what was asked for before is done."""
        return self._ask(CommandType.GET_PARAMETER_CHECKPOINT)

    def gradients(self) -> list[dict[str, torch.Tensor]]:
        """Return copies of each stage's accumulated gradients on the host, as ``checkpoint``."""
        return self._ask(CommandType.GET_PARAMETER_GRADIENTS)

    def update_parameters(self, stage: int, values: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters of a stage, after what was asked for before.

        Raises:
            PipelineError: a name or shape that the stage does not have.
        """
        self._require(1)
        self.stages[stage].check_update(values)
        worker = self._workers.get(stage)
        if worker is not None:
            worker.commands.put(Command(CommandType.UPDATE_DEVICE_PARAMETERS, parameters=dict(values)))

    def sync(self) -> None:
        """Wait until all that was asked for is done, on the host and on the devices.

        Raises:
            StageError: a stage failed.
        """
        here = [worker.stage for worker in self._workers.values()]
        self._ask(CommandType.SYNC)
        for device in {stage.device for stage in here if stage.device.type != "cpu"}:
            torch.accelerator.synchronize(device)
        if self._ranked is not None:
            share_spans(self._ranked, self.stages)

    # Within

    def _push(
        self,
        channel: Channel[Feed],
        device: torch.device,
        tensors: tuple[torch.Tensor, ...],
        named: Mapping[str, torch.Tensor],
    ) -> None:
        values = checked_inputs(tensors, named)
        try:
            stored = store(channel, _CPU if self._on_host else device, values)
            channel.put(Feed(stored, tuple(named) or None))
        except KeyboardInterrupt:
            if self._lifeline is not None:
                self._lifeline.stop()
            raise

    def _check_targets(self, count: int) -> None:
        """In the calling thread, waiting for targets that nobody pushes would have no end."""
        num_targets = len(self.targets)
        if self._training and self.stages[-1].loss is not None and num_targets < count:
            raise PipelineError(
                f"{count} inputs and {num_targets} targets wait: push a target for each input before they "
                "run in the calling thread"
            )

    def _require(self, count: int) -> None:
        if count < 0:
            raise PipelineError(f"count is {count}; it is the number of micro-batches, or 0 for no end")
        if self._lifeline is None:
            raise PipelineError("the pipeline was not started: call start() first")
        self._lifeline.check()

    def _discard_twins(self, count: int) -> None:
        """Forget the inputs and targets that another rank consumes: all ranks push the same."""
        if not self.is_here(0):
            self.inputs.discard(count)
        if not self.is_here(-1) and self._training and self.stages[-1].loss is not None:
            self.targets.discard(count)

    def _send(self, make: Callable[[], Command]) -> None:
        for worker in self._workers.values():
            worker.commands.put(make())

    def _simple(self, command: Command, inline: bool) -> None:
        self._require(1)
        if inline and self._ranked is None:
            self._inline(command)
            return
        self._send(lambda: command)
        if inline:
            self._ask(CommandType.SYNC)

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

    def _inline(self, command: Command, *, reverse: bool = False) -> None:
        self._ask(CommandType.SYNC)  # the workers must be idle: their stages are used from here
        assert self._lifeline is not None
        for _, worker in sorted(self._workers.items(), reverse=reverse):
            worker.run(command)
            self._lifeline.check()

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
        self.inputs.wake()


def _nothing() -> None:
    pass


def _find_dead(workers: Iterable[Worker], lifeline: Lifeline) -> None:
    for worker in workers:
        if worker.died:
            lifeline.fail(worker.stage.name, "its thread", PipelineError("the thread ended without an error"))


def _join(worker: Worker, deadline: float) -> bool:
    return worker.join(max(deadline - time.monotonic(), 0))


@atexit.register
def _shutdown_all() -> None:
    deadline = time.monotonic() + SHUTDOWN_SECONDS
    for pipeline in list(_running):
        pipeline.shutdown(max(deadline - time.monotonic(), 0.1))
    close()
