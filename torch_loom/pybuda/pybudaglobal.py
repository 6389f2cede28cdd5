"""The devices of the program and the pipeline they form."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Sequence
from typing import Any

from torch_loom.errors import PyBudaError

__all__ = ["get_devices", "get_tenstorrent_device", "is_silicon", "pybuda_reset", "set_device_pipeline"]


class _State:
    """What the functions of ``pybuda.run`` share."""

    def __init__(self) -> None:
        self.devices: list[Any] = []
        self.session: Any = None
        self.lock = threading.RLock()
        """Held while a pipeline starts or is replaced."""

    def forget(self) -> None:
        """Begin anew: in a fork, where devices and their workers are the parent's."""
        self.__init__()  # type: ignore[misc]

    def register(self, device: Any) -> None:
        """Append a device to the pipeline: devices stand in the order in which they were made."""
        if any(known.name == device.name for known in self.devices):
            raise PyBudaError(
                f"there is a device {device.name!r} already: take another name, or call pybuda_reset()"
            )
        self.devices.append(device)


state = _State()
os.register_at_fork(after_in_child=state.forget)


def get_devices() -> list[Any]:
    """Return the devices of the pipeline, in order."""
    return list(state.devices)


def set_device_pipeline(devices: Sequence[Any]) -> None:
    """Let these devices, in this order, be the pipeline.

    Raises:
        PyBudaError: something else than a device.
    """
    from torch_loom.pybuda.device import Device

    for device in devices:
        if not isinstance(device, Device):
            raise PyBudaError(f"set_device_pipeline takes devices, not {type(device).__name__}")
    if state.session is not None:
        state.session.close()
    state.devices = list(devices)


def get_tenstorrent_device() -> Any:
    """Return the first TTDevice of the pipeline, or None."""
    from torch_loom.pybuda.ttdevice import TTDevice

    return next((device for device in state.devices if isinstance(device, TTDevice)), None)


def is_silicon() -> bool:
    """Return False: there is no silicon here."""
    return False


def pybuda_reset() -> None:
    """Shut down and forget devices, modules' placement, and the configuration."""
    from torch_loom.pybuda.config import reset_configuration
    from torch_loom.pybuda.run.api import shutdown

    shutdown()
    for device in state.devices:
        device.remove_modules()
        device.remove_loss_module()
    reset_configuration()
    if state.devices:
        # Stages and what autograd kept for them form cycles that hold device memory.
        state.devices = []
        gc.collect()
