"""Devices on virtual chips: which chips, what they stand for, and how they compute."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

import torch

from torch_loom import config as loom_config
from torch_loom import numerics
from torch_loom.config import settings
from torch_loom.errors import PyBudaError
from torch_loom.pybuda.chips import chip_name, device_type, num_chips_available
from torch_loom.pybuda.config import _get_global_compiler_config
from torch_loom.pybuda.device import Device
from torch_loom.pybuda.enums import BackendDevice, BackendType, DeviceMode
from torch_loom.pybuda.formats import DataFormat
from torch_loom.pybuda.optimizers import Optimizer
from torch_loom.pybuda.schedulers import LearningRateScheduler
from torch_loom.pybuda.wanted import Index, check_count, read

# Which combinations compute in Tensix formats (docs/numerics.md); all others are exact.
EMULATING = {BackendType.Silicon, BackendType.Versim, BackendType.Emulation}
TENSIX = {"grayskull", "wormhole_b0", "blackhole"}
_ChipIds = Annotated[list[Index | tuple[Index]], "a list of indices, from 0"]


class ChipDevice(Device):
    """A device on virtual chips; :class:`TTDevice` says what the arguments are.

    Raises:
        PyBudaError: an argument of another type.
    """

    def __init__(
        self,
        name: str,
        chip_ids: list[int],
        *,
        arch: BackendDevice | None,
        devtype: BackendType | None,
        device_mode: DeviceMode | None,
        fp32_fallback: DataFormat,
        mp_context: Any,
    ) -> None:
        check_types(
            name,
            arch=(arch, BackendDevice),
            devtype=(devtype, BackendType),
            device_mode=(device_mode, DeviceMode),
            fp32_fallback=(fp32_fallback, DataFormat),
        )
        super().__init__(name, mp_context)
        self.chip_ids = chip_ids
        self.arch = arch
        self.devtype = devtype or BackendType.Silicon
        self.devtype_given = devtype is not None
        self.device_mode = device_mode or DeviceMode.CompileAndRun
        self.fp32_fallback = fp32_fallback
        self.optimizer: Optimizer | None = None
        self.scheduler: LearningRateScheduler | None = None

    def torch_device(self) -> torch.device:
        """Return the first chip's device."""
        return torch.device(device_type(), self.chip_ids[0])

    @property
    def chip(self) -> str:
        """The name of the chip that the device stands for, such as ``wormhole_b0``."""
        return self.arch.name.lower() if self.arch is not None else chip_name(self.chip_ids[0])

    def emulates(self) -> bool:
        """Whether the device computes in the formats of its chip."""
        return self.devtype in EMULATING and self.chip in TENSIX

    def numbers(self) -> AbstractContextManager[object]:
        """Return the context of the chip's numbers: exact, or those of its formats."""
        made: AbstractContextManager[object] = self.chosen_numbers()()
        return made

    def chosen_numbers(self) -> Callable[[], Any]:
        # An image has its numbers compiled in.
        if not self.emulates() or self.device_mode is DeviceMode.RunOnly:
            return nullcontext
        config = _get_global_compiler_config()
        return functools.partial(
            numerics.emulate,
            config.default_df_override or self.fp32_fallback,
            fidelity=config.default_math_fidelity,
            accumulate=config.default_accumulate_df,
            mode=loom_config.value(settings.NUMERICS),
            chip=self.chip,
        )


def check_types(device: str, **arguments: tuple[object, type]) -> None:
    """Refuse arguments of a device that are neither None nor of their type.

    Raises:
        PyBudaError: names device, argument, value and type.
    """
    for argument, (value, kind) in arguments.items():
        read(f"TTDevice {device!r}: {argument}", value, kind | None)


def chips_of(name: str, num_chips: int | None, chip_ids: Any) -> list[int]:
    """Return the indices of the chips that were asked for.

    Raises:
        PyBudaError: a chip that does not exist, or numbers that contradict one another.
    """
    if num_chips is not None:
        check_count(f"TTDevice {name!r}", "num_chips", num_chips, 0, "all")
    available = num_chips_available()
    what = f"TTDevice {name!r}: chip_ids"
    given = read(what, list(chip_ids) if isinstance(chip_ids, range) else chip_ids, _ChipIds | None)
    if given or (given is not None and num_chips is None):
        flat = [chip[0] if isinstance(chip, tuple) else chip for chip in given]
        if len(set(flat)) < len(flat):
            raise PyBudaError(f"{what} is {chip_ids!r}; a device has a chip once")
        if num_chips not in (None, len(flat)):
            raise PyBudaError(
                f"TTDevice {name!r}: num_chips is {num_chips}, and {len(flat)} chip_ids are given"
            )
    elif num_chips is None:
        flat = [0]
    else:
        flat = list(range(num_chips or available))
    if not flat or max(flat) >= available:
        raise PyBudaError(
            f"TTDevice {name!r}: chips {flat} were asked for, and there are {available}, from 0: "
            "TORCH_LOOM_DEVICES says how many there are"
        )
    return flat
