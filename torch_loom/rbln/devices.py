"""What the vendor's devices are: NPUs and chiplets, names, and stand-ins that execute nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from torch.types import Device

from torch_loom import _C, config
from torch_loom.device import devices
from torch_loom.device._core import properties, topology
from torch_loom.device._core.device_index import _existing_index, _get_device_index
from torch_loom.device._core.first_use import _chip_figures, _device_count
from torch_loom.errors import DummyDeviceError

__all__ = [
    "DeviceProperties",
    "get_device_name",
    "get_device_properties",
    "is_dummy_device",
    "is_initialized",
    "physical_device_count",
    "set_device",
]

_is_selected = False


@dataclass(frozen=True, repr=False)
class DeviceProperties(properties.DeviceProperties):
    """What a device is: what ``torch.loom`` says of it, and the vendor's figures.

    Attributes:
        name: what the vendor's tools call the card, ``"RBLN-CA12"``; the chip's name where that is not known.
        npu_count: how many NPUs make the device.
        num_chiplet: how many chiplets one of them has.
        memory_per_chiplet: bytes that a chiplet has; of the smallest where the NPUs differ.
        total_memory: of all NPUs together, in bytes.
    """

    npu_count: int = 1
    num_chiplet: int = 1
    memory_per_chiplet: int = 0

    def __repr__(self) -> str:
        return (
            f"DeviceProperties(name={self.name!r}, total_memory={self.total_memory}, "
            f"npu_count={self.npu_count}, num_chiplet={self.num_chiplet}, "
            f"memory_per_chiplet={self.memory_per_chiplet})"
        )


def is_dummy_device() -> bool:
    """Return whether RBLN_DUMMY_DEVICE has devices stand for NPUs that are not there. Opens no device.

    Raises:
        ConfigurationError: it has a bad value.
    """
    return config.is_rbln_dummy()


def physical_device_count() -> int:
    """Return how many NPUs the program sees, whichever devices they make; 0 under RBLN_DUMMY_DEVICE.

    Raises:
        ConfigurationError: a setting has a bad value.
    """
    return 0 if is_dummy_device() else topology.physical_device_count()


def set_device(device: Device) -> None:
    """Make a device current in this thread, as :func:`torch.loom.set_device`.

    Raises:
        InvalidDeviceError: there is no such device.
        DeviceTypeError: ``device`` is of another type, or lacks the index.
    """
    global _is_selected
    devices.set_device(device)
    _is_selected = _is_selected or _get_device_index(device) >= 0


def is_initialized() -> bool:
    """Return whether a device was selected by :func:`set_device`, or there is none to select.

    ``torch.distributed`` selects one by the rank where it was not. :func:`torch.loom.is_initialized` says
    whether devices have been used.

    Raises:
        ConfigurationError: a setting has a bad value.
    """
    return _is_selected or _device_count() == 0


def npu_memories(index: int) -> tuple[int, ...]:
    """Return the bytes of each NPU that makes an existing device, in their order."""
    total = int(_C.mem_get_info(index)[1])
    if _C.world():
        return (total,)  # of a dry run, whose devices are not made of NPUs
    settings = config.resolve()
    own = _C.chip(index).memory_bytes
    found = (settings.memories[npu] for npu in settings.npus_of(index))
    return tuple(own if given is None else given for given in found)


def num_chiplets(index: int) -> int:
    """Return how many chiplets each NPU of an existing device has."""
    return int(_chip_figures(index)["num_chiplets"])


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Return what a device is.

    Args:
        device: which one; the current one if None.

    Raises:
        InvalidDeviceError: there is no such device.
        DummyDeviceError: under RBLN_DUMMY_DEVICE there is no NPU to tell of.
    """
    if is_dummy_device():
        raise DummyDeviceError(
            "get_device_properties() tells what an NPU is, and RBLN_DUMMY_DEVICE has none. "
            "torch.loom.get_device_properties() tells what the stand-in is."
        )
    known = devices.get_device_properties(device)
    index = _existing_index(device)
    chiplets, memories = num_chiplets(index), npu_memories(index)
    own: dict[str, Any] = {each.name: getattr(known, each.name) for each in fields(known)}
    own["name"] = _npu_name(index) or known.name
    return DeviceProperties(
        **own,
        npu_count=len(memories),
        num_chiplet=chiplets,
        memory_per_chiplet=min(memories) // chiplets,
    )


def _npu_name(index: int) -> str:
    chip: Any = getattr(_chip_figures(index), "chip", None)
    return str(getattr(chip, "npu_name", ""))


def get_device_name(device: Device = None) -> str | None:
    """Return what the vendor's tools call the NPUs of a device, ``"RBLN-CA12"``.

    Args:
        device: which one; the current one if None. A negative index does nothing: None is returned.

    Raises:
        InvalidDeviceError: there is no such device.
        DummyDeviceError: under RBLN_DUMMY_DEVICE.
    """
    if device is not None and _get_device_index(device, optional=True) < 0:
        return None
    return get_device_properties(device).name
