"""Devices: what modules are placed on. A row of devices is a pipeline."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from torch_loom.errors import PyBudaError
from torch_loom.pipeline import Channel, ProcessStage, Stage
from torch_loom.pipeline.feeding import store
from torch_loom.pipeline.links import Feed
from torch_loom.pybuda.config import _get_global_compiler_config
from torch_loom.pybuda.execution.device_loop import DeviceLoop
from torch_loom.pybuda.execution.runner import BudaRunner
from torch_loom.pybuda.module import Module, PyBudaModule
from torch_loom.pybuda.tensor import Tensor, to_torch
from torch_loom.pybuda.wanted import check_name


class Device(DeviceLoop):
    """A device of a pipeline, in the order in which devices are made.

    The original runs a process for each device; here it is a thread, so modules need not be picklable.

    Args:
        name: unique among the devices of a pipeline when it starts; files of the device are called so.
        mp_context: a context of ``multiprocessing`` that spawns: the device runs in a process of its own.
    """

    def __init__(self, name: str, mp_context: Any = None) -> None:
        check_name("a device", name)
        self.name = name
        self.mp_context = mp_context
        self._process = os.getpid()
        self.modules: list[Module] = []
        self.loss_module: Module | None = None
        self.stage: Stage | None = None
        self.command_queue: queue.Queue[Any] = queue.Queue()
        self.response_queue: queue.Queue[Any] = queue.Queue()
        self.shutdown_event = threading.Event()
        self.debug_gradient_trace_queue: Any = None
        self.microbatch_size = 0
        self.microbatch_count = 1
        # By sub-graph; 0 is that of a device without any.
        self._batch: dict[int, int] = {}
        self._inputs: dict[int, Channel[Feed]] = {}
        self._targets: dict[int, Channel[Feed]] = {}
        program.register(self)

    # Placement

    def place_module(self, module: Module | tuple[Module, ...] | list[Module]) -> None:
        """Place a module, or several that run one after another, on this device.

        Raises:
            PyBudaError: no module, one that this kind of device cannot run, or two of one name.
        """
        placed = list(module) if isinstance(module, (tuple, list)) else [module]
        names = {known.name for known in self.modules}
        for each in placed:
            if not isinstance(each, Module):
                raise PyBudaError(
                    f"device {self.name!r} takes modules of PyBuda, not {type(each).__name__}: wrap a "
                    "torch.nn.Module in PyTorchModule"
                )
            if each.name in names:
                raise PyBudaError(f"a module {each.name!r} is placed already: modules need different names")
            names.add(each.name)
            self._check_module(each)
        self._changed()
        for each in placed:
            self.modules.append(each)
            each.set_device(self)

    def place_loss_module(self, module: Module) -> None:
        """Place the module that computes the loss; the device must be the last one when training starts.

        It is called with the outputs and then the targets.

        Raises:
            PyBudaError: no module.
        """
        if not isinstance(module, Module):
            raise PyBudaError(f"a loss is a module of PyBuda, not {type(module).__name__}: wrap it")
        self._check_module(module)
        self._changed()
        self.loss_module = module
        module.set_device(self)

    def remove_loss_module(self) -> None:
        """Remove the loss module, if there is one."""
        if self.loss_module is not None:
            self._changed()
            self.loss_module.set_device(None)
            self.loss_module = None

    def remove_modules(self) -> None:
        """Remove the placed modules and what was pushed for them."""
        self._changed()
        for module in self.modules:
            module.set_device(None)
        self.modules = []
        self.drop_queued()

    # Data

    def push_to_inputs(self, *tensors: Any) -> None:
        """Queue the inputs of one micro-batch: in order, as one tuple or list, or by name as one dict.

        The first dimension is the micro-batch; all inputs have the same, or 1. Waits while the queue is full
        and the pipeline runs.

        Raises:
            PyBudaError: batches that differ, or from those pushed first; the device was made before a fork.
            TypeError: something else than tensors.
            QueueFullError: the queue is full, and nothing runs that would drain it.
        """
        values, names = _ordered(tensors)
        self._check_batch(values)
        self._put(self.input_channel(), values, names)

    def push_to_target_inputs(self, *tensors: Any) -> None:
        """Queue the targets of one micro-batch; waits and raises as push_to_inputs."""
        values, _ = _ordered(tensors)
        self._put(self.target_channel(), values, None)

    def get_first_inputs(self, peek: bool = False) -> tuple[int, tuple[Tensor, ...]]:
        """Return the size of a micro-batch and the first inputs pushed; with ``peek`` they stay in the queue.

        Raises:
            PyBudaError: none was pushed.
        """
        tensors = self._first(self.input_channel(), peek, "Inputs")
        return _batch_of(tensors), tuple(Tensor(value) for value in tensors)

    def get_first_targets(self) -> tuple[Tensor, ...]:
        """Return the first targets pushed; they stay in the queue.

        Raises:
            PyBudaError: none was pushed.
        """
        return tuple(Tensor(value) for value in self._first(self.target_channel(), True, "Targets"))

    def set_debug_gradient_trace_queue(self, q: Any) -> None:
        """Let incoming and outgoing gradients go into a queue, from the next start on."""
        self.debug_gradient_trace_queue = q

    def get_tapout_values(self, handle: Any) -> list[torch.Tensor]:
        """Return and forget the values that the op of a tap-out handle has had, in order."""
        runner = None
        if self.mp_context is not None:
            raise PyBudaError(f"values are not tapped in a process: device {self.name!r} has an mp_context")
        if self.stage is not None:
            runner = self.stage.modules.get(handle.module.name)
        if not isinstance(runner, BudaRunner):
            raise PyBudaError(f"module {handle.module.name!r} has not run on device {self.name!r}")
        return list(runner.taps.pop((handle.op_name, handle.output_index), ()))

    # For the pipeline

    def torch_device(self) -> torch.device:
        """Return where the modules run."""
        return torch.device("cpu")

    def input_channel(self) -> Channel[Feed]:
        """Return the queue of inputs; its capacity is that of the configuration when it is first used."""
        chosen = self.chosen_module()
        name = f"{self.name}: inputs" if chosen is None else f"{self.name}: inputs of {chosen}"
        return self._queue(self._inputs, chosen or 0, name)

    def target_channel(self) -> Channel[Feed]:
        """Return the queue of targets, as ``input_channel``."""
        return self._queue(self._targets, 0, f"{self.name}: targets")

    @staticmethod
    def _queue(queues: dict[int, Channel[Feed]], place: int, name: str) -> Channel[Feed]:
        found = queues.get(place)
        if found is None:
            # Two threads that push first at the same time get the same queue.
            made = Channel[Feed](name, _get_global_compiler_config().input_queue_entries)
            found = queues.setdefault(place, made)
        return found

    def chosen_module(self) -> int | None:
        """Return the place of the module that runs alone; None: all run, in order."""
        return None

    def make_stage(self) -> Stage:
        """Return the stage of the placed modules, made at the first call after a change.

        Raises:
            PyBudaError: nothing is placed.
        """
        if not self.modules:
            raise PyBudaError(f"device {self.name!r} has no module: place_module() first")
        if self.stage is None:
            self.stage = self._new_stage({module.name: module.torch_module() for module in self.modules})
        if self.stage.links is None:
            self.stage.chosen = self.chosen_module()
        return self.stage

    def prepare_inference(self) -> None:
        """Compile for the first inputs in the queue, where runs are compiled: they do not wait for it."""

    def drop_queued(self) -> None:
        """Forget what was pushed and not consumed."""
        for channel in (*self._inputs.values(), *self._targets.values()):
            if not channel.drained:
                channel.clear()
        self._inputs, self._targets, self._batch = {}, {}, {}

    def stage_of(self, modules: dict[str, nn.Module], **options: Any) -> Stage:
        """Return a stage on this device: in a process of its own with an ``mp_context``."""
        options["recompute"] = _get_global_compiler_config().enable_recompute
        if self.mp_context is None:
            return Stage(self.name, modules, self.torch_device(), **options)
        return ProcessStage(self.name, modules, self.torch_device(), mp_context=self.mp_context, **options)

    def _new_stage(self, modules: dict[str, nn.Module]) -> Stage:
        raise PyBudaError(f"{type(self).__name__} {self.name!r} runs no modules: use CPUDevice or TTDevice")

    def _check_module(self, module: Module) -> None:
        """Refuse modules that this kind of device cannot run."""

    def _loss(self) -> nn.Module | None:
        return None if self.loss_module is None else self.loss_module.torch_module()

    def _changed(self) -> None:
        """End a running pipeline that uses the old placement."""
        if self.session is not None:
            self.session.close()
        self.stage = None

    def _check_batch(self, values: tuple[torch.Tensor, ...]) -> None:
        sizes = {value.shape[0] for value in values if value.dim() > 0}
        if len(sizes - {1}) > 1:
            raise PyBudaError(
                f"inputs of one micro-batch have first dimensions {sorted(sizes)}: one size, or 1"
            )
        batch = max(sizes, default=1)
        known = self._batch.setdefault(self.chosen_module() or 0, batch)
        if batch != known:
            raise PyBudaError(
                f"Batch size mismatch between first input and current input: {known} and {batch}"
            )

    def _put(
        self, channel: Channel[Feed], values: tuple[torch.Tensor, ...], names: tuple[str, ...] | None
    ) -> None:
        if os.getpid() != self._process:
            raise PyBudaError(
                f"device {self.name!r} was made before a fork and runs in the parent process alone: make "
                "devices in the child"
            )
        on_host = _get_global_compiler_config().input_queues_on_host
        device = torch.device("cpu") if on_host else self.torch_device()
        channel.put(Feed(store(channel, device, values), names))

    def _first(self, channel: Channel[Feed], peek: bool, what: str) -> tuple[torch.Tensor, ...]:
        feed = channel.peek() if peek or not len(channel) else channel.get()
        if feed is None or feed.parcel is None:
            raise PyBudaError(f"{what} must be pushed into device {self.name!r} before they can be read")
        return tuple(value for value in feed.parcel.tensors if value is not None)


def _ordered(tensors: tuple[Any, ...]) -> tuple[tuple[torch.Tensor, ...], tuple[str, ...] | None]:
    given: Any = tensors[0] if len(tensors) == 1 else tensors
    if isinstance(given, Mapping):
        return tuple(to_torch(value) for value in given.values()), tuple(map(str, given))
    if not isinstance(given, (tuple, list)):
        given = (given,)
    if not given:
        raise TypeError("a micro-batch needs a tensor or more")
    return tuple(to_torch(value) for value in given), None


def _batch_of(values: tuple[torch.Tensor, ...]) -> int:
    return max((value.shape[0] for value in values if value.dim() > 0), default=1)


def is_buda(module: Module) -> bool:
    """Whether a module is written in PyBuda's ops."""
    return isinstance(module, PyBudaModule)


class Program:
    """The devices of this process, in the order in which they were made: the pipeline that they form."""

    def __init__(self) -> None:
        self.devices: list[Device] = []

    @property
    def placed(self) -> list[Device]:
        """The devices that have modules."""
        return [device for device in self.devices if device.modules]

    def register(self, device: Device) -> None:
        """Append a device."""
        self.devices.append(device)

    def forget(self) -> None:
        """Begin anew: in a fork, where devices and their workers are the parent's."""
        self.devices = []


program = Program()
os.register_at_fork(after_in_child=program.forget)
