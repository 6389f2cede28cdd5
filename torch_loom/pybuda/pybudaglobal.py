"""The devices of the program and the pipeline they form."""

from __future__ import annotations

import gc
from collections.abc import Sequence

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.config import reset_configuration
from torch_loom.pybuda.device import Device, program
from torch_loom.pybuda.enums import BackendType
from torch_loom.pybuda.run.api import shutdown
from torch_loom.pybuda.run.session import running
from torch_loom.pybuda.tensor import TILE as TILE_DIM
from torch_loom.pybuda.ttdevice import TTDevice
from torch_loom.pybuda.utils import align_up_tile, round_up_div

__all__ = [
    "TILE_DIM",
    "align_up_tile",
    "get_devices",
    "get_tenstorrent_device",
    "is_silicon",
    "pybuda_reset",
    "round_up_div",
    "set_device_pipeline",
]


def get_devices() -> list[Device]:
    """Return the devices of the pipeline, in order."""
    return list(program.devices)


def set_device_pipeline(devices: Sequence[Device]) -> None:
    """Let these devices, in this order, be the pipeline.

    Raises:
        PyBudaError: something else than a device.
    """
    for device in devices:
        if not isinstance(device, Device):
            raise PyBudaError(f"set_device_pipeline takes devices, not {type(device).__name__}")
    if running.session is not None:
        running.session.close()
    program.devices = list(devices)


def get_tenstorrent_device() -> TTDevice | None:
    """Return the first TTDevice of the pipeline, or None."""
    return next((device for device in program.devices if isinstance(device, TTDevice)), None)


def is_silicon(devtype: BackendType | None = None) -> bool:
    """Return False: there is no silicon here, whatever a device stands for."""
    return False


def pybuda_reset() -> None:
    """Shut down and forget devices, modules' placement, and the configuration."""
    reset_devices()
    reset_configuration()


def reset_devices() -> None:
    """Shut down and forget devices and modules' placement."""
    shutdown()
    for device in program.devices:
        device.remove_modules()
        device.remove_loss_module()
    if program.devices:
        # Stages and what autograd kept for them form cycles that hold device memory.
        program.devices = []
        gc.collect()
