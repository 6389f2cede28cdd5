"""The engine: stages in a row, a worker each, micro-batches in flight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torch_loom.errors import PipelineError
from torch_loom.pipeline.channel import Channel
from torch_loom.pipeline.commands import Command, CommandType
from torch_loom.pipeline.feeding import checked_inputs, store
from torch_loom.pipeline.links import Feed
from torch_loom.pipeline.ranks import share_spans
from torch_loom.pipeline.runs import Runs
from torch_loom.pipeline.schedule import ScheduleName

_CPU = torch.device("cpu")
_ENDLESS = 1 << 60  # entries


class Pipeline(Runs):
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
        inputs, targets: queues that exist already, in place of new queues.
        ranks: the process of each stage, where several run this program; ``"local"``: all stages here.
            Default: under torchrun (or an initialized torch.distributed) the stages are spread in order.
            All processes make the same calls, and all of them read the same outputs, losses and checkpoints.

    Raises:
        PipelineError: no stage, or two of one name.
    """

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

    def forward(self, count: int = 1, *, inline: bool = False, outputs: Any = None) -> None:
        """Run ``count`` micro-batches forward; 0 goes on until ``end_endless``, ``start`` or ``shutdown``.

        With ``inline`` in the calling thread: at most the micro-batches that wait, and done on return.
        ``outputs`` is the queue for their outputs, in place of that given to ``start``.

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
            if number := count or self._num_forwards:
                self.backward(number, zero_grad=zero_grad)
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

    def choose(self, stage: int, module: int, inputs: Channel[Feed] | None = None) -> None:
        """Let one module of a stage run alone, after what was asked for before.

        Args:
            module: its place among those of the stage.
            inputs: the queue that the pipeline reads from then on, where it is the first stage.

        Raises:
            PipelineError: the stages are on several ranks, or there is no such module.
        """
        self._require(1)
        assert self._lifeline is not None
        chosen = self.stages[stage]
        if self.distributed:
            raise PipelineError("choose: the stages are on several ranks, whose queues are not told of it")
        if not 0 <= module < len(chosen.modules):
            raise PipelineError(f"stage {chosen.name!r} has {len(chosen.modules)} modules, and no {module}")
        if inputs is not None and inputs not in self._queues:
            inputs.attach(self._lifeline)
            self._queues.add(inputs)
        if inputs is not None and stage == 0:
            self.inputs = inputs

        def switch() -> None:
            chosen.choose(module)
            if inputs is not None and stage == 0 and chosen.links is not None:
                chosen.links.inputs = inputs

        self._workers[stage].commands.put(Command(CommandType.CALL, parameters=switch))

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
        for device in {device for stage in here for device in stage.devices if device.type != "cpu"}:
            torch.accelerator.synchronize(device)
        if self._ranked is not None:
            share_spans(self._ranked, self.stages)

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
        """Raise if targets are missing: no other thread might push them, so waiting might not end."""
        num_targets = len(self.targets)
        if self._training and self.stages[-1].loss is not None and num_targets < count:
            raise PipelineError(
                f"{count} inputs and {num_targets} targets wait: push a target for each input before they "
                "run in the calling thread"
            )

    def _discard_twins(self, count: int) -> None:
        """Forget the inputs and targets that another rank consumes: all ranks push the same."""
        if not self.is_here(0):
            self.inputs.discard(count)
        if not self.is_here(-1) and self._training and self.stages[-1].loss is not None:
            self.targets.discard(count)

    def _simple(self, command: Command, inline: bool) -> None:
        self._require(1)
        if inline and self._ranked is None:
            self._inline(command)
            return
        self._send(lambda: command)
        if inline:
            self._ask(CommandType.SYNC)

    def _inline(self, command: Command, *, reverse: bool = False) -> None:
        self._ask(CommandType.SYNC)  # the workers must be idle: their stages are used from here
        assert self._lifeline is not None
        for _, worker in sorted(self._workers.items(), reverse=reverse):
            worker.run(command)
            self._lifeline.check()
