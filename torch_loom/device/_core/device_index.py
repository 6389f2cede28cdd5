"""What a device argument means."""

from __future__ import annotations

from typing import Any

import torch

from torch_loom import _C, config
from torch_loom.device._core.first_use import _device_count, _lazy_init
from torch_loom.errors import DeviceTypeError, InvalidDeviceError

# The name is fixed when torch is imported: PyTorch takes one per process.
DEVICE_TYPE: str = config.device_name()


_INVALID_DEVICE = 101  # CUDA's cudaErrorInvalidDevice


class DeviceContext:
    """What ``torch.loom.device`` is, as far as it stands for a device.

    Attributes:
        idx: the device's index; -1: none.
    """

    idx: int


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the index that ``device`` means, with the rules of ``torch.cuda._utils._get_device_index``.

    Args:
        device: a ``torch.device``, its text, an index, a ``torch.loom.device`` context, or None. An index is
            returned as it is, whether or not such a device exists.
        optional: let None, and a device without an index, mean the current device.
        allow_cpu: accept cpu devices and return -1 for them.

    Raises:
        DeviceTypeError: ``device`` is of another device type, lacks the index, or is none of these, which
            under the name cuda is the current device where it is optional.
        InvalidDeviceError: the index in its text is larger than PyTorch can hold.
    """
    # torch.cuda takes a bool for a number.
    if isinstance(device, int) and (not isinstance(device, bool) or DEVICE_TYPE == config.CUDA_NAME):
        return int(device)
    if isinstance(device, DeviceContext):
        return device.idx
    index: int | None = None
    if isinstance(device, (str, torch.device)):
        text, device = device, torch.device(device)
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != DEVICE_TYPE:
            expected = f"{DEVICE_TYPE} or cpu" if allow_cpu else DEVICE_TYPE
            raise DeviceTypeError(f"Expected a {expected} device, but got: {device}")
        index = device.index
        if isinstance(text, str):
            _refuse_wrapped_index(text, index)
    elif device is not None and not (optional and DEVICE_TYPE == config.CUDA_NAME):
        # torch.cuda takes what is no device for the current one, and programs call it with tuples.
        raise DeviceTypeError(
            f"Expected a {DEVICE_TYPE} device, an index or None, but got {type(device).__name__} {device!r}"
        )
    if index is not None:
        return index
    if not optional:
        raise DeviceTypeError(f"Expected a {DEVICE_TYPE} device with an index, but got: {device}")
    _lazy_init()
    return _C.current_device()


def _refuse_wrapped_index(text: str, index: int | None) -> None:
    # torch.device keeps an index in 8 bits and drops the others: "loom:256" becomes device 0.
    written = text.partition(":")[2]
    if index is not None and int(written) != index:
        _check_index(int(written))


def _check_index(index: int) -> int:
    """Return ``index`` if there is such a device.

    Raises:
        InvalidDeviceError: there is none; under the name cuda ``torch.AcceleratorError``, as on a GPU.
    """
    count = _device_count()
    if 0 <= index < count:
        return index
    if DEVICE_TYPE == config.CUDA_NAME:
        the_devices = f"the devices are 0 … {count - 1}" if count else "there is no device"
        error = torch.AcceleratorError(f"CUDA error: invalid device ordinal: got {index}, and {the_devices}")
        error.error_code = _INVALID_DEVICE  # type: ignore[attr-defined]
        raise error
    if count == 0:
        raise InvalidDeviceError(f"Invalid device index {index}: there are no {DEVICE_TYPE} devices")
    there_are = f"there are {count} {DEVICE_TYPE} devices (0…{count - 1})"
    if count == 1:
        there_are = f"there is 1 {DEVICE_TYPE} device (0)"
    raise InvalidDeviceError(f"Invalid device index {index}: {there_are}")


def _existing_index(device: Any) -> int:
    """Initialise the devices and return the index of the existing device that ``device`` means."""
    index = _get_device_index(device, optional=True)
    _lazy_init()
    return _check_index(index)
