"""A device's own loop: commands, and what they do on this device alone."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch

from torch_loom.errors import LoomError, PipelineStoppedError, PyBudaError
from torch_loom.pipeline import Command as EngineCommand
from torch_loom.pipeline import CommandType as EngineCommandType
from torch_loom.pipeline import Pipeline, Stage, stage_error
from torch_loom.pipeline.transfer import flatten_outputs
from torch_loom.pipeline.worker import Worker
from torch_loom.pybuda.execution.generation import position
from torch_loom.pybuda.run.commands import Command, CommandType
from torch_loom.pybuda.tensor import Tensor
from torch_loom.pybuda.wanted import check_count


class DeviceSession(Protocol):
    """What a device asks of the pipeline that it runs in; ``run.session.Session`` answers."""

    training: bool
    pipeline: Pipeline

    @property
    def ended(self) -> bool:
        """Whether the pipeline failed or was shut down."""

    def worker_of(self, device: DeviceLoop) -> Worker | None:
        """Return the device's worker while the pipeline runs, or None."""

    def shares(self, device: DeviceLoop) -> bool:
        """Whether the pipeline runs over several processes."""

    def place_of(self, device: DeviceLoop) -> int:
        """Return where the device stands in the pipeline."""

    def close(self) -> bool:
        """End the pipeline; whether all devices ended in time."""


class DeviceLoop:
    """The part of a device that takes commands, and runs its stage in the calling thread."""

    name: str
    stage: Stage | None
    command_queue: queue.Queue[Any]
    response_queue: queue.Queue[Any]
    shutdown_event: threading.Event
    microbatch_size: int
    microbatch_count: int
    session: DeviceSession | None = None
    """The pipeline that the device is part of, from its start to its end."""
    _saved: tuple[list[torch.Tensor], tuple[torch.Tensor, ...], dict[str, torch.Tensor]] | None = None

    def push_to_command_queue(self, cmd: Command) -> None:
        """Send a command to the device's worker; where no pipeline runs, to the queue that ``run`` reads."""
        worker = self.session.worker_of(self) if self.session is not None else None
        if worker is None:
            self.command_queue.put(cmd)
        else:
            worker.commands.put(
                EngineCommand(EngineCommandType.CALL, parameters=lambda: self.run_next_command(cmd))
            )

    def get_command_queue_response(self) -> dict[str, Any] | None:
        """Return the next answer to a command; waits for it. None if the device failed or was shut down."""
        while True:
            try:
                answer: dict[str, Any] | None = self.response_queue.get(timeout=0.05)
                return answer
            except queue.Empty:
                if self.shutdown_event.is_set() or (self.session is not None and self.session.ended):
                    return None

    def get_next_command(self, command_queue: queue.Queue[Command]) -> Command | None:
        """Return the next command of a queue; waits for it. None once the device is shut down."""
        while not self.shutdown_event.is_set():
            try:
                return command_queue.get(timeout=0.05)
            except queue.Empty:
                continue
        return None

    def run_next_command(self, cmd: Command) -> bool:
        """Run a command in the calling thread; whether it was QUIT. Answers go to the response queue.

        Raises:
            PyBudaError: the command needs modules or a pipeline that are not there.
        """
        kind, params = cmd.command_type, cmd.params
        match kind:
            case CommandType.QUIT:
                return True
            case CommandType.RUN_FORWARD:
                self.forward(**params)
            case CommandType.RUN_BACKWARD:
                self.backward(**params)
            case CommandType.RUN_OPTIMIZER:
                self._stage().step()
            case CommandType.RUN_SCHEDULERS:
                self._stage().step_scheduler()
            case CommandType.DC_TRANSFER:
                self.dc_transfer(**params)
            case CommandType.UPDATE_DEVICE_PARAMETERS:
                self.update_device_parameters(**params)
            case CommandType.COMPILE:
                self.response_queue.put({"outputs": self.compile_for(**params)})
            case CommandType.CPUEVAL_FORWARD:
                self.response_queue.put({"outputs": self.cpueval_forward(**params)})
            case CommandType.CPUEVAL_BACKWARD:
                inputs, parameters = self.cpueval_backward(**params)
                self.response_queue.put({"input_gradients": inputs, "parameter_gradients": parameters})
            case CommandType.GET_PARAMETER_CHECKPOINT:
                self.response_queue.put({"checkpoint": self.get_parameter_checkpoint()})
            case CommandType.GET_PARAMETER_GRADIENTS:
                self.response_queue.put({"gradients": self.get_parameter_gradients()})
            case CommandType.RUN_GENERATE:
                self.generate(**params)
            case CommandType.GET_QUEUES:
                names = ("queues", "tile_broadcast_dims", "original_shapes")
                found = self.get_dram_io_queues(**params)
                self.response_queue.put(dict(zip(names, found, strict=True)))
            case CommandType.SET_QUEUES:
                self.set_dram_io_queues(**params)
            case CommandType.SYNC:
                self.response_queue.put({"sync": True})
            case _:
                raise PyBudaError(f"device {self.name!r} has no command {kind.name}")
        return False

    def run(self, output_dir: str = "") -> None:
        """Take commands from ``command_queue`` until QUIT or shutdown, in the calling thread."""
        while True:
            command = self.get_next_command(self.command_queue)
            if command is None or self.run_next_command(command):
                return

    def forward(self, loop_count: int = 1) -> None:
        """Run micro-batches forward through this device's modules, in the calling thread.

        Raises:
            PyBudaError: the pipeline was not initialized.
            StageError: a module failed; the error is an instance of the original's class too.
        """
        stage, session = self._running()
        with self._naming("forward"):
            for _ in range(loop_count):
                stage.forward(session.training)

    def generate(
        self, loop_count: int, write_index: int, tokens_per_iter: int = -1, token_id: int = -1
    ) -> None:
        """Run micro-batches forward in generation; modules with ``set_position`` know where they write.

        Arguments and errors are those of ``pybuda.run_generate``.
        """
        start, num_tokens = position("generate", write_index, tokens_per_iter, token_id)
        self._stage().call_modules("set_position", start, num_tokens)
        self.forward(loop_count)

    def get_dram_io_queues(self, queue_type: str) -> tuple[list[dict[str, Any]], list[Any], list[Any]]:
        """Return descriptions of queues in a chip's memory.

        Raises:
            PyBudaError: the device has no chip.
        """
        raise PyBudaError(f"device {self.name!r} has no queues in DRAM: a TTDevice has")

    def set_dram_io_queues(self, direction: str, *descriptions: Any, **more: Any) -> None:
        """Check a direction, as ``dc_transfer``: stages know their queues."""
        self.dc_transfer(direction)

    def backward(self, loop_count: int = 1, zero_grad: bool = False) -> None:
        """Run micro-batches backward through this device's modules in reverse, in the calling thread."""
        stage = self._stage()
        if zero_grad:
            stage.zero_grad()
        with self._naming("backward"):
            for _ in range(loop_count):
                stage.backward()

    def dc_transfer(self, direction: str) -> None:
        """Check that data in a direction has where to go: stages hand it on themselves.

        Args:
            direction: ``forward_input``, ``forward``, ``backward``, ``target`` or ``intermediates``.

        Raises:
            PyBudaError: another direction.
        """
        known = ("forward_input", "forward", "backward", "target", "intermediates")
        if direction not in known:
            raise PyBudaError(f"dc_transfer: direction {direction!r} is none of {', '.join(known)}")

    def dc_transfer_thread(self, direction: str, direction_queue: queue.Queue[Any]) -> None:
        """Run ``dc_transfer`` for each command of a queue until QUIT or shutdown."""
        while True:
            command = self.get_next_command(direction_queue)
            if command is None or command.command_type is CommandType.QUIT:
                return
            self.dc_transfer(direction)

    def compile_for(self, training: bool, microbatch_size: int = 0, microbatch_count: int = 1) -> Any:
        """Keep the size and the number of micro-batches.

        Raises:
            PyBudaError: a count that is none, or training with micro-batches of size 0.
        """
        check_count("compile_for", "microbatch_size", microbatch_size, 1 if training else 0)
        check_count("compile_for", "microbatch_count", microbatch_count)
        self.microbatch_size, self.microbatch_count = microbatch_size, microbatch_count

    def get_parameter_checkpoint(self) -> dict[str, Tensor]:
        """Return copies of the parameters' values by name, on the host."""
        return _wrapped(self._values("checkpoint"))

    def get_parameter_gradients(self) -> dict[str, Tensor]:
        """Return copies of the accumulated gradients by name, on the host."""
        return _wrapped(self._values("gradients"))

    def pop_parameter_checkpoint(self) -> dict[str, Tensor]:
        """Return the parameters' values by name, as ``get_parameter_checkpoint``."""
        return self.get_parameter_checkpoint()

    def update_device_parameters(self, parameters: Any) -> None:
        """Overwrite parameters: a dict by name, or a list of such dicts.

        Raises:
            PipelineError: a name or shape that the device does not have.
        """
        stage = self.make_stage()
        for values in [parameters] if isinstance(parameters, dict) else parameters:
            stage.update({name: value_of_tensor(value) for name, value in values.items()})

    def sync(self) -> None:
        """Wait until the commands that this device was given are done.

        Raises:
            StageError: a device of the pipeline failed.
        """
        if self.session is not None and self.session.worker_of(self) is not None:
            self.session.pipeline.sync()

    def shutdown_device(self) -> None:
        """Drop what is left in the device's queues, and end its own loop."""
        self.shutdown_event.set()
        for left in (self.command_queue, self.response_queue):
            while not left.empty():
                left.get_nowait()
        self.drop_queued()

    # What the device's own class says.

    def make_stage(self) -> Stage:
        """Return the stage of the placed modules."""
        raise NotImplementedError

    def chosen_module(self) -> int | None:
        """Return the place of the module that runs alone; None: all run, in order."""
        raise NotImplementedError

    def drop_queued(self) -> None:
        """Forget what was pushed."""
        raise NotImplementedError

    def cpueval_forward(
        self,
        inputs: list[torch.Tensor],
        parameters: dict[str, torch.Tensor],
        save_for_backward: bool,
        targets: Sequence[torch.Tensor] = [],
    ) -> list[torch.Tensor]:
        """Run the modules on the host with these parameters, for verification.

        Args:
            inputs: of one micro-batch, in order.
            parameters: by name; those left out have the device's values.
            save_for_backward: keep what ``cpueval_backward`` needs.
            targets: if there is a loss module: its targets; the losses are returned then.

        Raises:
            PyBudaError: a parameter that the device does not have.
            StageError: a module failed; the error is an instance of the original's class too.
        """
        with self._naming("cpueval_forward"):
            return self._cpueval_forward(inputs, parameters, save_for_backward, targets)

    def _cpueval_forward(
        self,
        inputs: list[torch.Tensor],
        parameters: dict[str, torch.Tensor],
        save_for_backward: bool,
        targets: Sequence[torch.Tensor],
    ) -> list[torch.Tensor]:
        stage = self.reference_stage()
        leaves = [_leaf(value, save_for_backward) for value in inputs]
        for name, value in parameters.items():
            if name not in stage.parameters.named:
                raise PyBudaError(f"device {self.name!r} has no parameter {name!r}")
            with torch.no_grad():
                stage.parameters.named[name].copy_(value_of_tensor(value))
        with torch.set_grad_enabled(save_for_backward):
            outputs = stage.compute(tuple(leaves))
            if stage.loss is not None and targets:
                outputs = flatten_outputs(stage.loss(*outputs, *targets))
        if save_for_backward:
            self._saved = (leaves, outputs, dict(stage.parameters.named))
        return [output.detach() for output in outputs]

    def cpueval_backward(
        self, bw_inputs: list[torch.Tensor], parameters: dict[str, torch.Tensor]
    ) -> tuple[list[torch.Tensor | None], dict[str, torch.Tensor]]:
        """Run the backward of the last ``cpueval_forward``; gradients of its inputs and of the parameters.

        Raises:
            PyBudaError: no forward was saved.
        """
        if self._saved is None:
            raise PyBudaError("cpueval_backward needs cpueval_forward(save_for_backward=True) first")
        leaves, outputs, named = self._saved
        self._saved = None
        pairs = [(o, g) for o, g in zip(outputs, bw_inputs, strict=True) if o.requires_grad]
        with self._naming("cpueval_backward"):
            torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        wanted = parameters or named
        grads = {n: v.grad for n, v in named.items() if n in wanted and v.grad is not None}
        return [leaf.grad for leaf in leaves], grads

    @contextlib.contextmanager
    def _naming(self, doing: str) -> Iterator[None]:
        """Let what a module raises in the calling thread name the device, as a worker's error does."""
        try:
            yield
        except LoomError:
            raise
        except Exception as error:
            raise stage_error(self.name, doing, error) from error

    def reference_stage(self) -> Stage:
        """Return a copy of the stage on the host, exact, with the device's present parameters."""
        stage = self.make_stage()
        loss = stage.loss if isinstance(stage.loss, torch.nn.Module) else None
        chosen = self.chosen_module()
        return Stage(
            f"{self.name}: reference", stage.modules, "cpu", loss=loss, keep_modules=False, chosen=chosen
        )

    def output_shapes(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the outputs for inputs of these shapes and dtypes, as tensors of the meta device.

        Raises:
            StageError: a module failed; the error is an instance of the original's class too.
        """
        reference = self.reference_stage()
        for module in reference.modules.values():
            module.to("meta")
        with torch.no_grad(), self._naming("compile_for"):
            return reference.compute(tuple(value.to("meta") for value in inputs))

    def _values(self, what: str) -> dict[str, torch.Tensor]:
        """The stage's parameters or gradients; of a stage on another rank while the pipeline runs."""
        stage, session = self.make_stage(), self.session
        if session is not None and session.shares(self):
            values: dict[str, torch.Tensor] = getattr(session.pipeline, what)()[session.place_of(self)]
        else:
            values = getattr(stage, what)()
        return values

    def _running(self) -> tuple[Stage, DeviceSession]:
        if self.stage is None or self.stage.links is None or self.session is None:
            raise PyBudaError(f"device {self.name!r} has no running pipeline: initialize_pipeline() first")
        if self.session.ended:
            raise PipelineStoppedError("the pipeline has ended: initialize_pipeline() again")
        return self.stage, self.session

    def _stage(self) -> Stage:
        return self._running()[0]


def _leaf(value: Any, needs_grad: bool) -> torch.Tensor:
    leaf = value_of_tensor(value).detach().clone()
    return leaf.requires_grad_(needs_grad and leaf.is_floating_point())


def value_of_tensor(value: Any) -> torch.Tensor:
    """Return the torch tensor of a tensor or parameter."""
    return value if isinstance(value, torch.Tensor) else value.value()


def _wrapped(values: dict[str, torch.Tensor]) -> dict[str, Tensor]:
    return {name: Tensor(value) for name, value in values.items()}
