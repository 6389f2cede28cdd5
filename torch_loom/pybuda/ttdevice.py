"""A stage on a virtual chip."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from torch_loom.chips import load
from torch_loom.config.keywords import names_near_keywords
from torch_loom.errors import PyBudaError
from torch_loom.pipeline import Stage, StageParameters
from torch_loom.pybuda.chips import chip_name, device_type
from torch_loom.pybuda.config import CompilerConfig, _get_global_compiler_config, used_configuration
from torch_loom.pybuda.enums import BackendDevice, BackendType, DeviceMode
from torch_loom.pybuda.execution.chip_device import ChipDevice, check_types, chips_of
from torch_loom.pybuda.execution.compiled_runs import CompiledRuns
from torch_loom.pybuda.execution.device_loop import value_of_tensor
from torch_loom.pybuda.execution.frontends import TFModule
from torch_loom.pybuda.execution.placing import wants_files, write_files
from torch_loom.pybuda.execution.tracing import traced
from torch_loom.pybuda.formats import DataFormat
from torch_loom.pybuda.module import Module
from torch_loom.pybuda.optimizers import Optimizer
from torch_loom.pybuda.parameter import Parameter
from torch_loom.pybuda.schedulers import LearningRateScheduler
from torch_loom.pybuda.tensor import Tensor
from torch_loom.pybuda.tti import TTDeviceImage, compile_image, place_image
from torch_loom.pybuda.verify.config import VerifyConfig
from torch_loom.pybuda.verify.stages import verify_device


class GridSize(NamedTuple):
    """Rows and columns of cores."""

    r: int
    c: int


@dataclass(frozen=True)
class DeviceConfig:
    """What a chip is to the compiler; its grid has no harvested rows."""

    arch_name: str
    chip_ids: list[int]
    grid_size: GridSize


def get_device_config(
    arch: BackendDevice, chip_ids: list[int] | None = None, *descriptions: Any, **options: Any
) -> DeviceConfig:
    """Return what a chip of an architecture is; descriptions of other chips are the compiler's options."""
    chip = load(arch.name.lower())
    rows = chip.grid_rows - len(chip.harvested_rows)
    return DeviceConfig(arch.to_string(), list(chip_ids or [0]), GridSize(rows, chip.grid_columns))


class TTDevice(ChipDevice):
    """Runs modules on virtual chips; PyTorch modules as copies, whose parameters are the device's own.

    Args:
        name: unique in the program.
        num_chips: the first so many chips; 0 means all. Several chips share the device's modules in order.
        chip_ids: these chips. Default: chip 0.
        arch: the chip to be; None: the chip that the device has.
        devtype: what executes. Silicon (the default), Versim and Emulation compute in the formats of Tensix
            chips; Golden and Model, and chips that are not Tenstorrent's, are exact.
        device_mode: compile and run, or only one of both.
        optimizer, scheduler: used in training.
        fp32_fallback: the format of float32 data on chips that lack it.
        mp_context: a context of ``multiprocessing`` that spawns; None: the device runs in a thread.
        module: placed at once.

    Raises:
        PyBudaError: chips that do not exist, or contradicting numbers.
    """

    @names_near_keywords
    def __init__(
        self,
        name: str,
        num_chips: int | None = None,
        chip_ids: list[int] | list[tuple[int]] | None = None,
        arch: BackendDevice | None = None,
        devtype: BackendType | None = None,
        device_mode: DeviceMode | None = None,
        optimizer: Optimizer | None = None,
        scheduler: LearningRateScheduler | None = None,
        fp32_fallback: DataFormat = DataFormat.Float16_b,
        mp_context: Any = None,
        module: Module | list[Module] | None = None,
    ) -> None:
        check_types(name, optimizer=(optimizer, Optimizer), scheduler=(scheduler, LearningRateScheduler))
        super().__init__(
            name,
            chips_of(name, num_chips, chip_ids),
            arch=arch,
            devtype=devtype,
            device_mode=device_mode,
            fp32_fallback=fp32_fallback,
            mp_context=mp_context,
        )
        self.optimizer, self.scheduler = optimizer, scheduler
        self._active_subgraph = 0
        self._runs: CompiledRuns | None = None
        if module is not None:
            self.place_module(module)

    def get_device_config(self, compiler_cfg: CompilerConfig | None = None) -> dict[str, Any]:
        """Return which chips are used and what they are: ``chip_ids``, ``arch``, ``devtype``, ``chips``."""
        return {
            "chip_ids": list(self.chip_ids),
            "arch": self.arch,
            "devtype": self.devtype,
            "chips": [chip_name(index) for index in self.chip_ids],
        }

    def set_active_subgraph(self, subgraph_index: int) -> None:
        """Choose the sub-graph whose inputs are pushed from now on, and that the next runs run.

        With ``CompilerConfig.compile_subgraphs`` each placed module is a sub-graph with a queue of inputs of
        its own; without it all modules are one, in order.

        Raises:
            PyBudaError: there is no sub-graph of that index.
            PipelineError: the devices are on several ranks.
        """
        number = len(self.modules) if self._has_subgraphs() else 1
        if not isinstance(subgraph_index, int) or not 0 <= subgraph_index < max(number, 1):
            hint = "" if self._has_subgraphs() else ": CompilerConfig.compile_subgraphs makes each module one"
            raise PyBudaError(
                f"set_active_subgraph: {subgraph_index} is none of the {number} sub-graphs{hint}"
            )
        self._active_subgraph = subgraph_index
        session = self.session
        if self._has_subgraphs() and session is not None and not session.ended:
            place = session.place_of(self)
            session.pipeline.choose(place, subgraph_index, self.input_channel() if place == 0 else None)

    def remove_modules(self) -> None:
        """Remove the placed modules and what was pushed for them; sub-graph 0 is active again."""
        super().remove_modules()
        self._active_subgraph = 0

    def chosen_module(self) -> int | None:
        """Return the active sub-graph where each module is one."""
        return self._active_subgraph if self._has_subgraphs() else None

    def _has_subgraphs(self) -> bool:
        return _get_global_compiler_config().compile_subgraphs and len(self.modules) > 1

    def get_active_subgraph(self) -> int:
        """Return the index of the active sub-graph."""
        return self._active_subgraph

    def compile_for(  # type: ignore[override]
        self,
        inputs: tuple[Tensor, ...],
        compiler_cfg: CompilerConfig | None = None,
        targets: Sequence[Tensor] = [],
        microbatch_size: int = 0,
        microbatch_count: int = 1,
        verify_cfg: VerifyConfig | None = None,
    ) -> tuple[Tensor, ...]:
        """Make the modules ready for inputs of these shapes and return the outputs, as shapes.

        Args:
            compiler_cfg: in place of the global configuration, for what is verified and written here. Runs
                have the global one.

        Raises:
            PyBudaError: the device only runs images (RunOnly), or a count is none.
            LoomError: files are asked for, and the compiler refuses the modules or options.
            VerificationError: with ``verify_cfg`` and values, the device does not compute what PyTorch does.
        """
        if self.device_mode is DeviceMode.RunOnly:
            raise PyBudaError(f"device {self.name!r} has mode RunOnly and does not compile: load an image")
        super().compile_for(False, microbatch_size, microbatch_count)
        values = [value._value for value in inputs]
        self.make_stage()  # for runs: under the global configuration
        with used_configuration(compiler_cfg or _get_global_compiler_config()) as config:
            if verify_cfg is not None and all(value.has_value() for value in inputs):
                verify_device(self, [value.value() for value in inputs], verify_cfg)
            if wants_files(config):
                write_files([self], values, [True])
        return tuple(Tensor(output) for output in self.output_shapes(values))

    def compile_to_image(
        self,
        *,
        img_path: str | None = None,
        training: bool = False,
        sample_inputs: Any = (),
        sample_targets: Any = (),
        microbatch_count: int = 1,
        verify_cfg: VerifyConfig | None = None,
        cpueval_outputs: Any = None,
    ) -> TTDeviceImage:
        """Compile the modules and write them to a file, which ``load_image`` runs.

        Args:
            img_path: the file; default: ``device_images/<name>.tti``.
            training: for runs of training; the device has its loss, and may have an optimizer. Dropout and
                norms are as the modules' modes say. Otherwise for inference.
            sample_inputs, sample_targets: of one micro-batch; their shapes are compiled for.
            verify_cfg: compares the device with PyTorch on these inputs before anything is written.
            cpueval_outputs: what the modules give on the host, if it is known: what the device is compared
                with.

        Raises:
            PyBudaError: arch, devtype, inputs or targets are missing; training has no loss.
            VerificationError: a compared value differs.
        """
        if len(sample_targets) and not training:
            raise PyBudaError("compile_to_image: sample_targets are for training=True alone")
        inputs, targets = _in_order(sample_inputs), _in_order(sample_targets)

        def verify() -> None:
            if verify_cfg is not None and verify_cfg.enabled:
                given = [value_of_tensor(value) for value in cpueval_outputs or ()] or None
                verify_device(self, [value_of_tensor(value) for value in inputs], verify_cfg, outputs=given)

        return compile_image(self, img_path, inputs, microbatch_count, training, targets, verify)

    @staticmethod
    def load_image(
        *, img: TTDeviceImage | None = None, img_path: str | None = None, device_id_overrides: Any = None
    ) -> TTDevice:
        """Return a device that runs an image: mode RunOnly, the image's modules and loss placed.

        Raises:
            PyBudaError: neither or both of ``img`` and ``img_path``.
            ImageError: the file is no image of a TTDevice.
        """
        if (img is None) == (img_path is None):
            raise PyBudaError("load_image takes either img or img_path")
        if img is None:
            assert img_path is not None
            img = TTDeviceImage.load_from_disk(img_path, device_id_overrides)
        device = TTDevice(
            img.device_name,
            chip_ids=img.chip_ids,
            arch=img.arch,  # type: ignore[arg-type]
            devtype=img.devtype,  # type: ignore[arg-type]
            device_mode=DeviceMode.RunOnly,
        )
        place_image(device, img)
        return device

    def generate_graph(
        self,
        *inputs: Tensor,
        target_tensors: Sequence[Tensor] = [],
        return_intermediate: bool = False,
        graph_name: str = "default_graph",
        compiler_cfg: CompilerConfig | None = None,
        trace_only: bool = False,
        verify_cfg: VerifyConfig | None = None,
    ) -> tuple[Any, ...]:
        """Trace the modules and return the graph and the outputs.

        Returns:
            The graph (``torch.fx.Graph``; its owner has ``name``), the outputs (with values where all inputs
            have some), with ``return_intermediate`` the values by node, the inputs, the first target or None.

        Raises:
            PyBudaError: no inputs; or no targets for a placed loss, unless only a trace is asked for.
            StageError: a module cannot be traced.
        """
        if not inputs:
            raise PyBudaError("generate_graph needs the inputs of one micro-batch; shapes are enough")
        if self.loss_module is not None and not target_tensors and not trace_only:
            raise PyBudaError("generate_graph: a loss is placed: give target_tensors, or trace_only=True")
        with self._naming("generate_graph"):
            graph, outputs, values = traced(self.reference_stage(), inputs, target_tensors, graph_name)
        target = target_tensors[0] if target_tensors else None
        if return_intermediate:
            return graph, outputs, values, tuple(inputs), target
        return graph, outputs, tuple(inputs), target

    def get_dram_io_queues(self, queue_type: str) -> tuple[list[dict[str, Any]], list[Any], list[Any]]:
        """Return descriptions of queues, which of their tiles are broadcast, and their shapes.

        Args:
            queue_type: ``input``, ``target``, ``output`` or ``parameter``.

        Raises:
            PyBudaError: another type.
        """
        known = ("input", "target", "output", "parameter")
        if queue_type not in known:
            raise PyBudaError(f"get_dram_io_queues: queue_type {queue_type!r} is none of {', '.join(known)}")
        config = _get_global_compiler_config()
        if queue_type == "parameter":
            named = self.get_all_parameters()
            described = [{"name": n, "entries": 1, "on_host": False, "chip": self.chip_ids[0]} for n in named]
            return described, [None] * len(named), [tuple(value.shape) for value in named.values()]
        if queue_type == "output":
            on_host, feed = config.output_queues_on_host, None
        else:
            channel = self.input_channel() if queue_type == "input" else self.target_channel()
            on_host, feed = config.input_queues_on_host, channel.peek()
        tensors = (
            [] if feed is None or feed.parcel is None else [t for t in feed.parcel.tensors if t is not None]
        )
        described = [
            {
                "name": f"{self.name}_{queue_type}_{number}",
                "entries": config.input_queue_entries,
                "on_host": on_host,
                "chip": self.chip_ids[0],
            }
            for number in range(max(len(tensors), 1))
        ]
        return described, [None] * len(described), [tuple(value.shape) for value in tensors]

    def get_all_parameters(self) -> dict[str, Tensor]:
        """Return the parameters' values by name, of all modules."""
        return self.get_parameter_checkpoint()

    def get_parameters(self, ignore_unused_parameters: bool = True) -> list[Parameter]:
        """Return the parameters of the modules.

        Args:
            ignore_unused_parameters: leave out those that no gradient has reached, if any has one.
        """
        parameters = [p for module in self.modules for p in module.get_parameters()]
        if ignore_unused_parameters and self.stage is not None:
            used = self.stage.gradients()
            if used:
                return [p for p in parameters if p.get_name() in used or not p.requires_grad]
        return parameters

    def get_optimizer(self) -> Optimizer | None:
        """Return the optimizer, or None."""
        return self.optimizer

    def get_optimizer_params(self, is_buda: bool = False) -> dict[str, dict[str, float]]:
        """Return, for each parameter, the numbers that its optimizer uses (``learning_rate`` and others)."""
        if self.optimizer is None:
            return {}
        numbers = self.optimizer.get_param_dict()
        chosen = self.optimizer.parameters
        names = [p.get_name() for p in (chosen if chosen is not None else self.get_parameters(False))]
        return {str(name): dict(numbers) for name in names}

    def get_scheduler_params(self, is_buda: bool = False) -> dict[str, dict[str, float]]:
        """Return, for each parameter, the numbers that the scheduler changes."""
        if self.scheduler is None:
            return {}
        rate = self.scheduler.optimizer.learning_rate
        return {name: {"learning_rate": rate} for name in self.get_optimizer_params(is_buda)}

    def prepare_inference(self) -> None:
        """Compile for the first inputs in the queue, where runs are compiled: they do not wait for it."""
        feed = self.input_channel().peek()
        if self._runs is not None and feed is not None and feed.parcel is not None:
            inputs = tuple(value.detach() for value in feed.parcel.tensors if value is not None)
            self._runs.prepare(inputs, feed.names)

    def _check_module(self, module: Module) -> None:
        if isinstance(module, TFModule):
            raise PyBudaError(
                f"TensorFlow module {module.name!r} runs on CPU devices only: place it on a CPUDevice"
            )

    def _new_stage(self, modules: dict[str, nn.Module]) -> Stage:
        self._runs = CompiledRuns(self) if self.mp_context is None else None
        return self.stage_of(
            modules,
            loss=self._loss(),
            optimizer=functools.partial(_torch_optimizer, self.optimizer) if self.optimizer else None,
            scheduler=functools.partial(_Scheduler, self.scheduler) if self.scheduler else None,
            keep_modules=False,
            more_devices=[torch.device(device_type(), chip) for chip in self.chip_ids[1:]],
            compiled=self._runs,
            # A process has no configuration of the program's: it gets what holds now.
            numbers=self.numbers if self.mp_context is None else self.chosen_numbers(),
        )


def _in_order(samples: Any) -> tuple[Any, ...]:
    return tuple(samples.values()) if isinstance(samples, dict) else tuple(samples)


def _torch_optimizer(optimizer: Optimizer, parameters: StageParameters) -> Any:
    return optimizer.get_pytorch_optimizer(optimizer.chosen(parameters.named))


class _Scheduler:
    """Steps a PyBuda scheduler and carries its learning rate over to the PyTorch optimizer."""

    def __init__(self, scheduler: LearningRateScheduler, optimizer: Any) -> None:
        self._optimizer, self._scheduler = optimizer, scheduler

    def step(self) -> None:
        self._scheduler.step()
        for group in self._optimizer.param_groups:
            group["lr"] = self._scheduler.optimizer.learning_rate
