"""Runs on a TTDevice as its compiled program, the one that an image of it holds."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torch_loom import config
from torch_loom.compiler.capture import NotPlainError
from torch_loom.config import settings
from torch_loom.errors import ExportError, HostOpError, LoomError, PlacementError
from torch_loom.image.executable import Executable
from torch_loom.pipeline.transfer import flatten_outputs
from torch_loom.pybuda.config import _get_global_compiler_config
from torch_loom.pybuda.enums import DeviceMode
from torch_loom.pybuda.execution.chip_device import ChipDevice
from torch_loom.pybuda.execution.placing import compiled
from torch_loom.pybuda.execution.runner import BudaRunner

logger = logging.getLogger("torch_loom")

MAX_PROGRAMS = 16
"""Inputs of more shapes than that run op by op; so do new ones once as many could not be compiled."""
_KEEPS_STATE = "the modules keep state from one input to the next"
_REFUSALS = (ExportError, HostOpError, PlacementError)
"""What the compiler says of modules that run op by op all the same; its other errors are the program's."""


class CompiledRuns:
    """Compiles a device's modules at the first inputs of a shape, and replays what it compiled.

    Modules run op by op, in the same formats, where they are exact, span several chips, keep state from one
    input to the next, are watched, or cannot be exported as one graph; ``reason`` then says why. In training
    they are compiled where ops have formats of their own.
    """

    def __init__(self, device: ChipDevice) -> None:
        self._device = device
        self._programs: dict[Any, Callable[..., list[Any]]] = {}
        self._had_values = False
        self._refused: set[Any] = set()
        self.reason = ""

    def __call__(
        self, inputs: tuple[torch.Tensor, ...], names: tuple[str, ...] | None, training: bool
    ) -> tuple[torch.Tensor, ...] | None:
        """Return the outputs; None: the modules are to run op by op."""
        program = self.prepare(inputs, names, training)
        return None if program is None else flatten_outputs(program(*inputs))

    def prepare(
        self, inputs: tuple[torch.Tensor, ...], names: tuple[str, ...] | None, training: bool = False
    ) -> Callable[..., list[Any]] | None:
        """Return the program for inputs of these shapes, compiled if it is new; None: op by op."""
        if not self._device.emulates() or (training and not _is_mixed()):
            return None
        stage = self._device.make_stage()
        modules = stage.chosen_modules(with_values=training)
        if stage.has_values != self._had_values:
            # What was compiled of the program's values would not see what changes on the device.
            self._programs, self._refused, self._had_values = {}, set(), stage.has_values
        modes = tuple(module.training for module in modules)
        key = (names, stage.chosen, training and modes, *((value.shape, value.dtype) for value in inputs))
        if key in self._programs or key in self._refused:
            return self._programs.get(key)
        if max(len(self._programs), len(self._refused)) >= MAX_PROGRAMS:
            self._note(f"there are {MAX_PROGRAMS} shapes already")
            return None
        try:
            if self._programs:
                # Inputs of all shapes meet the same parameters, also where the program changes its own.
                stage.take_values()
            if stage.has_values != self._had_values:
                return self.prepare(inputs, names, training)
            program = self._made(modules, inputs, names, training)
        except NotPlainError:
            stage.take_values()
            return self.prepare(inputs, names, training)
        if program is None:
            self._refused.add(key)
        else:
            self._programs[key] = program
        return program

    def _made(
        self,
        modules: list[nn.Module],
        inputs: tuple[torch.Tensor, ...],
        names: tuple[str, ...] | None,
        training: bool,
    ) -> Callable[..., list[Any]] | None:
        made: Executable | None = None
        reason = self._refusal(modules, training)
        if not reason:
            try:
                made = compiled(self._device, inputs, names or (), modules, training, plans_later=True)
            except _REFUSALS as error:
                reason = str(error).partition("\n")[0]
            except (NotPlainError, LoomError):
                raise
            except Exception as error:  # the modules' own, say of a wrong shape, which the run will raise
                reason = f"{type(error).__name__}: {error}".partition("\n")[0]
                logger.info("device %r runs op by op: %s", self._device.name, error, exc_info=error)
        has_updates = made is not None and bool(made.program.updates) and not training
        if made is not None and (has_updates or made.specs.get("keeps_state")):
            made, reason = None, _KEEPS_STATE
        self._note(reason)
        if made is not None and training:
            return made.recorded([parameter for module in modules for parameter in module.parameters()])
        return None if made is None else lambda *given: made.run_flat(given)

    def _note(self, reason: str) -> None:
        """Keep why modules are not compiled, and say it where settings have no effect for it."""
        self.reason = reason
        if reason and _is_mixed():
            warnings.warn(
                f"device {self._device.name!r}: mixed precision has no effect on this run, whose modules are "
                f"not compiled: {reason}",
                stacklevel=2,
            )

    def _refusal(self, modules: list[nn.Module], training: bool) -> str:
        stage = self._device.make_stage()
        every = [inner for module in modules for inner in module.modules()]
        if self._device.device_mode is DeviceMode.RunOnly:
            return "it is an image already"
        if training and stage.recompute:
            return "enable_recompute keeps no values of a forward"
        if len(stage.devices) > 1:
            return "the modules are on several chips"
        if config.value(settings.NUMERICS) != "fast":
            return "TORCH_LOOM_NUMERICS asks for the sums of silicon"
        if any(map(_takes_position, every)):
            return "a module is told its position"
        if any(isinstance(module, BudaRunner) and module.is_watched for module in every):
            return "values of ops are kept"
        return ""


def _is_mixed() -> bool:
    """Whether ops have formats of their own."""
    given = _get_global_compiler_config()
    return bool(given.amp_properties) or given.amp_level == 2


def _takes_position(module: nn.Module) -> bool:
    own = module.buda if isinstance(module, BudaRunner) else module
    return callable(getattr(own, "set_position", None))
