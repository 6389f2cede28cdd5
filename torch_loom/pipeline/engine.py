"""The engine: stages in a row, a worker each, micro-batches in flight."""

from __future__ import annotations

import atexit
import queue
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torch_loom.errors import PipelineError, StageError
from torch_loom.pipeline.channel import Channel
from torch_loom.pipeline.commands import Command, CommandType, Reply
from torch_loom.pipeline.failure import Lifeline
from torch_loom.pipeline.readers import GuardedQueue
from torch_loom.pipeline.report import Report
from torch_loom.pipeline.schedule import ScheduleName
from torch_loom.pipeline.stage import Feed, Links, Stage
from torch_loom.pipeline.transfer import Parcel, parcel
from torch_loom.pipeline.worker import Worker

__all__ = ["Pipeline"]

SHUTDOWN_SECONDS = 8.0  # of the 10 that a shutdown may take; the rest is for whoever calls it

Convert = Callable[[tuple[torch.Tensor, ...]], Any]
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
        convert_checkpoint: Callable[[dict[str, torch.Tensor]], Any] | None = None,
        inputs: Channel[Feed] | None = None,
        targets: Channel[Feed] | None = None,
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
        self._lifeline: Lifeline | None = None
        self._workers: list[Worker] = []
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
        """Return the worker of a stage while the pipeline runs, or None."""
        return self._workers[place] if self.running and self._workers else None

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
        """Return what the stages did when, since the last start."""
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
        self._link(lifeline, sinks)
        self._tap(lifeline, forward_taps, backward_taps, gradient_taps or {})
        last = self.stages[-1].links
        assert last is not None
        last.on_done = on_done
        for stage in self.stages:
            stage.reset()
            stage.prepare(training)
        self.inputs.attach(lifeline)
        self.targets.attach(lifeline)
        self._workers = [
            Worker(stage, place, len(self.stages), lifeline) for place, stage in enumerate(self.stages)
        ]
        self._lifeline = lifeline
        workers = self._workers
        lifeline.probe = lambda: _find_dead(workers, lifeline)
        for worker in workers:
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
        self._cancel_endless()
        left = [worker for worker in self._workers if not _join(worker, deadline)]
        for worker in left:
            worker.stage.left_behind = worker
        ended = not left
        self._workers = []
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
        self._push(self.inputs, self.stages[0], tensors, named)

    def push_target(self, *tensors: torch.Tensor) -> None:
        """Queue the targets of one micro-batch; waits and raises as ``push``."""
        self._push(self.targets, self.stages[-1], tensors, {})

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
        sink = None if outputs is None else self._sender(GuardedQueue.of(outputs, self._lifeline))
        if inline:
            ready = min(count or len(self.inputs), len(self.inputs))
            self._check_targets(ready)
            for _ in range(ready):
                self._inline(Command(CommandType.RUN_FORWARD, 1, training=self._training, on_output=sink))
            self._num_forwards += ready
            return
        cancel = self._endless_event(count)
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
        self._workers[stage].commands.put(
            Command(CommandType.UPDATE_DEVICE_PARAMETERS, parameters=dict(values))
        )

    def sync(self) -> None:
        """Wait until all that was asked for is done, on the host and on the devices.

        Raises:
            StageError: a stage failed.
        """
        self._ask(CommandType.SYNC)
        for device in {stage.device for stage in self.stages if stage.device.type != "cpu"}:
            torch.accelerator.synchronize(device)

    # Within

    def _link(self, lifeline: Lifeline, sinks: dict[str, GuardedQueue]) -> None:
        last = len(self.stages) - 1
        gather = _Gather(len(self.stages), sinks.get("checkpoints"), self._convert_checkpoint)
        inputs = self.inputs
        for place, stage in enumerate(self.stages):
            stage.is_first, stage.is_last = place == 0, place == last
            links = stage.links = Links(inputs, self.targets)
            links.on_checkpoint = gather.adder(place)
            if place > 0:
                before = self.stages[place - 1].links
                assert before is not None
                before.gradients = links.backward = Channel(
                    f"{stage.name}: gradients", self._entries, lifeline
                )
            if place < last:
                inputs = Channel(f"{stage.name}: outputs", self._entries, lifeline)
                links.forward = inputs
                continue
            if "losses" in sinks:
                links.on_loss = self._sender(sinks["losses"])
            if "outputs" in sinks:
                links.on_output = self._sender(sinks["outputs"])

    def _tap(
        self, lifeline: Lifeline, forward: Sequence[Any], backward: Sequence[Any], debug: Mapping[str, Any]
    ) -> None:
        for stage, target in zip(self.stages, forward, strict=False):
            assert stage.links is not None
            stage.links.on_forward = self._sender(GuardedQueue.of(target, lifeline))
        for stage, target in zip(self.stages[1:], backward, strict=False):
            assert stage.links is not None
            stage.links.on_backward = self._sender(GuardedQueue.of(target, lifeline))
        for stage in self.stages:
            if stage.name in debug and stage.links is not None:
                stage.links.on_gradients = self._sender(GuardedQueue.of(debug[stage.name], lifeline))

    def _sender(self, sink: GuardedQueue) -> Callable[[tuple[torch.Tensor | None, ...]], None]:
        def send(tensors: tuple[torch.Tensor | None, ...]) -> None:
            # Copies: what a program reads must not change with what a stage does next.
            on_host = tuple(t.to("cpu", copy=True) for t in tensors if t is not None)
            sink.put(self._convert(on_host))

        return send

    def _push(
        self,
        channel: Channel[Feed],
        stage: Stage,
        tensors: tuple[torch.Tensor, ...],
        named: Mapping[str, torch.Tensor],
    ) -> None:
        if tensors and named:
            raise TypeError("inputs of a micro-batch come in order or by name, not both")
        values = tensors or tuple(named.values())
        if not values:
            raise TypeError("a micro-batch needs a tensor or more")
        for value in values:
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"inputs of a pipeline are tensors, not {type(value).__name__}")
        try:
            feed = Feed(self._store(channel, stage, values), tuple(named) or None)
            channel.put(feed)
        except KeyboardInterrupt:
            if self._lifeline is not None:
                self._lifeline.stop()
            raise

    def _store(self, channel: Channel[Feed], stage: Stage, values: tuple[torch.Tensor, ...]) -> Parcel:
        if self._on_host or stage.device.type == "cpu":
            # What the program does to its tensors later is not the pipeline's input.
            return parcel([value.detach().clone() for value in values])
        while True:
            held = channel.num_held
            try:
                return parcel([value.detach().to(stage.device, copy=True) for value in values])
            except torch.OutOfMemoryError:
                if held == 0 or not channel.drained:
                    raise
                channel.wait_below(held)

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

    def _send(self, make: Callable[[], Command]) -> None:
        for worker in self._workers:
            worker.commands.put(make())

    def _simple(self, command: Command, inline: bool) -> None:
        self._require(1)
        if inline:
            self._inline(command)
        else:
            self._send(lambda: command)

    def _ask(self, kind: CommandType) -> list[Any]:
        self._require(1)
        assert self._lifeline is not None
        replies = [Reply(self._lifeline) for _ in self._workers]
        for worker, reply in zip(self._workers, replies, strict=True):
            worker.commands.put(Command(kind, reply=reply))
        return [reply.wait() for reply in replies]

    def _inline(self, command: Command, *, reverse: bool = False) -> None:
        self._ask(CommandType.SYNC)  # the workers must be idle: their stages are used from here
        assert self._lifeline is not None
        for worker in reversed(self._workers) if reverse else self._workers:
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
        self._endless.clear()
        self.inputs.wake()


class _Gather:
    """Puts the parameters of all stages together, checkpoint by checkpoint."""

    def __init__(
        self, num_stages: int, sink: GuardedQueue | None, convert: Callable[[dict[str, torch.Tensor]], Any]
    ) -> None:
        self._convert = convert
        self._lock = threading.Lock()
        self._sink = sink
        self._waiting: list[queue.SimpleQueue[dict[str, torch.Tensor]]] = [
            queue.SimpleQueue() for _ in range(num_stages)
        ]

    def adder(self, place: int) -> Callable[[dict[str, torch.Tensor]], None] | None:
        """Return what the stage at this place calls with its parameters."""
        if self._sink is None:
            return None

        def add(values: dict[str, torch.Tensor]) -> None:
            assert self._sink is not None
            with self._lock:
                self._waiting[place].put(values)
                if not any(waiting.empty() for waiting in self._waiting):
                    self._sink.put([self._convert(waiting.get()) for waiting in self._waiting])

        return add


def _nothing() -> None:
    pass


def _find_dead(workers: Sequence[Worker], lifeline: Lifeline) -> None:
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
