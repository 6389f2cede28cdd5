"""The pipeline of the placed modules, from its initialization to its end."""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from torch_loom.errors import PyBudaError
from torch_loom.pipeline import GuardedQueue, Pipeline, Stage, StageError
from torch_loom.pipeline.worker import Worker
from torch_loom.pybuda.config import CompilerConfig, _get_global_compiler_config
from torch_loom.pybuda.device import Device, program
from torch_loom.pybuda.enums import DeviceMode
from torch_loom.pybuda.execution.chip_device import ChipDevice
from torch_loom.pybuda.execution.device_loop import DeviceLoop
from torch_loom.pybuda.execution.placing import wants_files, write_files
from torch_loom.pybuda.execution.runner import BudaRunner
from torch_loom.pybuda.run.progress import Progress
from torch_loom.pybuda.tensor import Tensor
from torch_loom.pybuda.tti import ImageModule


class Session:
    """A running pipeline over the devices.

    Raises:
        PyBudaError: nothing is placed, or what training needs is missing.
    """

    def __init__(
        self,
        training: bool,
        *,
        output_queue: Any = None,
        checkpoint_queue: Any = None,
        loss_queue: Any = None,
        forward_taps: Sequence[Any] = (),
        backward_taps: Sequence[Any] = (),
        compile_only: bool = False,
        total: int = 0,
        samples: Sequence[torch.Tensor] | None = None,
        perf_trace: bool = False,
    ) -> None:
        config = _get_global_compiler_config()
        self.devices = _ready_devices(training, config)
        self.training = training
        self.compile_only = compile_only
        stages = [device.make_stage() for device in self.devices]
        self.output_queue = queue.Queue() if output_queue is None and not training else output_queue
        self.checkpoint_queue = queue.Queue() if checkpoint_queue is None and training else checkpoint_queue
        if training and loss_queue is None:
            # In training the losses are the outputs of the pipeline.
            loss_queue = queue.Queue() if output_queue is None else output_queue
        self.loss_queue = loss_queue
        self.intermediates_queue = queue.Queue[Any]() if config.op_intermediates_to_save else None
        self.progress = Progress(total) if config.show_progress else None
        self.pipeline = Pipeline(
            stages,
            convert=lambda tensors: [Tensor(tensor) for tensor in tensors],
            convert_checkpoint=_checkpoint,
            inputs=self.devices[0].input_channel(),
            targets=self.devices[-1].target_channel(),
        )
        if perf_trace or wants_files(config):
            self._write_files(samples, perf_trace)
        debug = {
            device.name: device.debug_gradient_trace_queue
            for device in self.devices
            if device.debug_gradient_trace_queue is not None
        }
        saved: _Intermediates | None = None
        if self.intermediates_queue is not None:
            saved = _keep_intermediates(stages, config.op_intermediates_to_save)
        try:
            self.pipeline.start(
                training,
                outputs=None if training else self.output_queue,
                losses=self.loss_queue,
                checkpoints=self.checkpoint_queue,
                forward_taps=forward_taps,
                backward_taps=backward_taps,
                gradient_taps=debug,
                on_done=self.progress,
            )
            if saved is not None:
                saved.open(self.pipeline.guard(self.intermediates_queue))
            for device in self.devices:
                device.session = self
            if not training and self.pipeline.is_here(0):
                self.devices[0].prepare_inference()
        except BaseException:
            self.pipeline.shutdown(keep_queued=True)
            if self.progress is not None:
                self.progress.close()
            self.leave()
            raise

    def _write_files(self, samples: Sequence[torch.Tensor] | None, perf_trace: bool) -> None:
        if samples is None:
            samples = [value.value() for value in self.devices[0].get_first_inputs(peek=True)[1]]
        here = [self.pipeline.is_here(place) for place in range(len(self.devices))]
        write_files(self.devices, samples, here, perf_trace=perf_trace)

    @property
    def ended(self) -> bool:
        """Whether the pipeline failed or was shut down."""
        return not self.pipeline.running

    @property
    def error(self) -> StageError | None:
        """The first failure of a device, or None."""
        return self.pipeline.error

    def worker_of(self, device: DeviceLoop) -> Worker | None:
        """Return the worker of a device while the pipeline runs, or None."""
        return self.pipeline.worker(self.devices.index(device)) if device in self.devices else None

    def shares(self, device: DeviceLoop) -> bool:
        """Whether a device is part of a running pipeline over several processes."""
        return device in self.devices and self.pipeline.distributed and not self.ended

    def place_of(self, device: DeviceLoop) -> int:
        """Return where a device stands among those that have modules.

        Raises:
            PyBudaError: it has none.
        """
        if device not in self.devices:
            name = getattr(device, "name", device)
            raise PyBudaError(f"device {name!r} is not part of the running pipeline")
        return self.devices.index(device)

    def require(self) -> Pipeline:
        """Return the pipeline.

        Raises:
            PyBudaError: it was compiled only.
        """
        if self.compile_only:
            raise PyBudaError("the pipeline was initialized with DeviceMode.CompileOnly and does not run")
        return self.pipeline

    def close(self) -> bool:
        """End the pipeline; whether all devices ended in time."""
        ended = self.pipeline.shutdown()
        if self.progress is not None:
            self.progress.close()
        self.leave()
        for device in self.devices:
            device.drop_queued()
        return ended

    def leave(self) -> None:
        """No longer be the session of the program and of its devices."""
        for runner in _runners([device.stage for device in self.devices if device.stage is not None]):
            runner.on_ops = None
        for device in self.devices:
            if device.session is self:
                device.session = None
        if running.session is self:
            running.session = None


class Running:
    """The session of this process, and the lock that is held while one starts or is replaced."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.lock = threading.RLock()

    def forget(self) -> None:
        """Begin anew: in a fork, where the workers are the parent's."""
        self.lock = threading.RLock()
        if self.session is not None:
            self.session.leave()


running = Running()
os.register_at_fork(after_in_child=running.forget)


def _ready_devices(training: bool, config: CompilerConfig) -> list[Device]:
    """Return the devices that have modules, if they can run."""
    devices = program.placed
    if not devices:
        raise PyBudaError("nothing is placed: place_module() on a device first")
    _check_names("device", [device.name for device in devices])
    _check_names("module", [module.name for device in devices for module in device.modules])
    if training:
        check_training(devices)
    elif trained := [device.name for device in devices if _image_of(device, for_training=True)]:
        raise PyBudaError(f"device {trained[0]!r} runs an image for training; compile one for inference, too")
    inside = [device.name for device in devices if device.mp_context is not None]
    if config.op_intermediates_to_save and inside:
        raise PyBudaError(
            f"op_intermediates_to_save: devices in processes of their own keep none: {', '.join(inside)}"
        )
    return devices


def _check_names(kind: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PyBudaError(
            f"two {kind}s of a pipeline are called {twice[0]!r}: give each its own, or call pybuda_reset()"
        )


def _runners(stages: Sequence[Stage]) -> list[BudaRunner]:
    modules = [module for stage in stages for module in stage.modules.values()]
    return [module for module in modules if isinstance(module, BudaRunner)]


def _keep_intermediates(stages: Sequence[Stage], names: list[str]) -> _Intermediates:
    """Have the values of the named ops kept from the first micro-batch on.

    Raises:
        PyBudaError: no module is one of PyBuda's ops, which have names.
    """
    runners = _runners(stages)
    if not runners:
        raise PyBudaError(f"op_intermediates_to_save: no PyBudaModule is placed that has {', '.join(names)}")
    saved = _Intermediates(names, len(runners))
    for place, runner in enumerate(runners):
        runner.on_ops = partial(saved.add, place)
    return saved


class _Intermediates:
    """Puts the values of the named ops together, micro-batch by micro-batch."""

    def __init__(self, names: list[str], num_modules: int) -> None:
        self._lock = threading.Lock()
        self._sink: GuardedQueue | None = None
        self._waiting: dict[str, deque[torch.Tensor]] = {name: deque() for name in names}
        self._known: list[str] = []
        self._unheard = set(range(num_modules))

    def open(self, sink: GuardedQueue) -> None:
        """Give a queue what has been kept, and what comes."""
        with self._lock:
            self._sink = sink
            self._pass_on()

    def add(self, module: int, values: Mapping[str, torch.Tensor]) -> None:
        """Take the values of the ops of a module that has run; ``module``: its number.

        Raises:
            PyBudaError: all modules have run, and none has an op of a name.
        """
        with self._lock:
            if module in self._unheard:
                self._known += values
                self._unheard.remove(module)
                missing = self._waiting.keys() - self._known
                if missing and not self._unheard:
                    raise PyBudaError(
                        f"op_intermediates_to_save: no op is called {', '.join(sorted(missing))}; there are "
                        f"{', '.join(self._known)}"
                    )
            for name in values.keys() & self._waiting.keys():
                self._waiting[name].append(values[name].to("cpu", copy=True))
            self._pass_on()

    def _pass_on(self) -> None:
        while self._sink is not None and all(self._waiting.values()):
            self._sink.put([Tensor(waiting.popleft()) for waiting in self._waiting.values()])


def has_inputs() -> bool:
    """Whether the first device that has modules has inputs in its queue."""
    devices = program.placed
    return bool(devices) and len(devices[0].input_channel()) > 0


def check_training(devices: Sequence[Device]) -> None:
    """Say whether these devices can train.

    Raises:
        PyBudaError: a device only runs what is no training, or the loss is missing, or not on the last device
            alone.
    """
    for device in devices:
        runs_alone = isinstance(device, ChipDevice) and device.device_mode is DeviceMode.RunOnly
        if runs_alone and not any(isinstance(module, ImageModule) for module in device.modules):
            raise PyBudaError(f"device {device.name!r} has mode RunOnly and no image: it cannot train")
        if _image_of(device, for_training=False):
            raise PyBudaError(
                f"device {device.name!r} runs an image for inference and cannot train: compile one with "
                "training=True"
            )
    with_loss = [device.name for device in program.devices if device.loss_module is not None]
    if with_loss != [devices[-1].name]:
        placed = ", ".join(with_loss) or "no device"
        raise PyBudaError(
            f"a loss module must be placed on the last device, {devices[-1].name!r}, and there alone; "
            f"it is placed on {placed}"
        )


def _image_of(device: Device, *, for_training: bool) -> bool:
    """Whether a device runs an image that was compiled for training, or for inference."""
    images = [module.image for module in device.modules if isinstance(module, ImageModule)]
    return any(image.is_compiled_for_training() == for_training for image in images)


def _checkpoint(values: dict[str, torch.Tensor]) -> dict[str, Tensor]:
    return {name: Tensor(value) for name, value in values.items()}
