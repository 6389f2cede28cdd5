"""Inference on a TTDevice as its compiled program, the one that an image of it holds."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from torch_loom import config
from torch_loom.config import settings
from torch_loom.errors import LoomError
from torch_loom.image.executable import Executable
from torch_loom.pipeline.transfer import flatten_outputs
from torch_loom.pybuda.config import _get_global_compiler_config
from torch_loom.pybuda.enums import DeviceMode
from torch_loom.pybuda.execution.chip_device import ChipDevice
from torch_loom.pybuda.execution.placing import compiled
from torch_loom.pybuda.execution.runner import BudaRunner

MAX_PROGRAMS = 16
"""Inputs of more different shapes run op by op."""


class CompiledRuns:
    """Compiles a device's modules at the first inputs of a shape, and replays what it compiled.

    Modules run op by op, in the same formats, where they are exact, span several chips, keep state from one
    input to the next, are watched, or cannot be exported as one graph; ``reason`` then says why.
    """

    def __init__(self, device: ChipDevice) -> None:
        self._device = device
        self._programs: dict[Any, Executable | None] = {}
        self.reason = ""

    def __call__(
        self, inputs: tuple[torch.Tensor, ...], names: tuple[str, ...] | None
    ) -> tuple[torch.Tensor, ...] | None:
        """Return the outputs; None: the modules are to run op by op."""
        if not self._device.emulates():
            return None
        chosen = self._device.make_stage().chosen
        key = (names, chosen, *((tuple(value.shape), value.dtype) for value in inputs))
        if key not in self._programs:
            self._programs[key] = self._made(inputs, names)
        program = self._programs[key]
        return None if program is None else flatten_outputs(program.run_flat(inputs))

    def _made(self, inputs: tuple[torch.Tensor, ...], names: tuple[str, ...] | None) -> Executable | None:
        self.reason = self._refusal()
        made = None
        if not self.reason:
            modules = self._device.make_stage().chosen_modules()
            try:
                made = compiled(self._device, inputs, names or (), modules)
            except LoomError as error:
                self.reason = str(error).partition("\n")[0]
        if made is not None and made.program.updates:
            made, self.reason = None, "the modules keep state from one input to the next"
        config = _get_global_compiler_config()
        if made is None and (config.amp_properties or config.amp_level == 2):
            warnings.warn(
                f"device {self._device.name!r}: mixed precision has no effect on this run, whose modules are "
                f"not compiled: {self.reason}",
                stacklevel=2,
            )
        return made

    def _refusal(self) -> str:
        stage = self._device.make_stage()
        modules = [inner for module in stage.chosen_modules() for inner in module.modules()]
        if self._device.device_mode is DeviceMode.RunOnly:
            return "it is an image already"
        if len(stage.devices) > 1:
            return "the modules are on several chips"
        if config.value(settings.NUMERICS) != "fast":
            return "TORCH_LOOM_NUMERICS asks for the sums of silicon"
        if any(map(_takes_position, modules)):
            return "a module is told its position"
        if any(isinstance(module, BudaRunner) and module.is_watched for module in modules):
            return "values of ops are kept"
        if len(self._programs) >= MAX_PROGRAMS:
            return f"there are programs for {MAX_PROGRAMS} shapes already"
        return ""


def _takes_position(module: torch.nn.Module) -> bool:
    own = module.buda if isinstance(module, BudaRunner) else module
    return callable(getattr(own, "set_position", None))
