"""Which devices there are, which is current, and what each is."""

from __future__ import annotations

import platform
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch.types import Device

from torch_loom import _C, config, late
from torch_loom.device._core.device_index import (
    DEVICE_TYPE,
    DeviceContext,
    _check_index,
    _existing_index,
    _get_device_index,
)
from torch_loom.device._core.first_use import (
    _chip,
    _chip_figures,
    _chip_names,
    _device_count,
    _lazy_init,
    _product_name,
)
from torch_loom.errors import InvalidDeviceError, InvalidDeviceIdError

if TYPE_CHECKING:
    from torch_loom.device._core.properties import DeviceProperties

__all__ = [
    "DeviceProperties",
    "can_device_access_peer",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "has_half",
    "has_magma",
    "is_available",
    "is_bf16_supported",
    "is_tf32_supported",
    "set_device",
    "synchronize",
]

_properties = late.lazily("torch_loom.device._core.properties")
NAMES_OF_LATE = {"DeviceProperties": _properties}

__getattr__, __dir__ = late.names(__name__, globals(), NAMES_OF_LATE)


has_half: bool = True
"""Whether the devices compute in float16: they do."""

has_magma: bool = torch._C.has_lapack
"""Whether linear algebra (``torch.linalg``) works on the devices: where the engine has LAPACK."""


def device_count() -> int:
    """Return how many devices the program sees. Does not initialise them.

    Raises:
        ConfigurationError: a setting has a bad value.
    """
    return _device_count()


def is_available() -> bool:
    """Return whether there is at least one device. Does not initialise it.

    Raises:
        ConfigurationError: a setting has a bad value.
    """
    return _device_count() > 0


def current_device() -> int:
    """Return the index of this thread's current device.

    Raises:
        NoDeviceError: there are no devices.
    """
    _lazy_init()
    return _C.current_device()


def set_device(device: Device) -> None:
    """Make a device current in this thread.

    Args:
        device: a device, its text or its index. A negative index does nothing, as in CUDA.

    Raises:
        InvalidDeviceError: there is no such device.
        DeviceTypeError: ``device`` is of another type, or lacks the index.
    """
    index = _get_device_index(device)
    if index >= 0:
        _lazy_init()
        _C.set_device(_check_index(index))


def _exchange_device(device: int) -> int:
    """Make a device current and return the previous one; if ``device`` is negative, only return -1."""
    if device < 0:
        return -1
    _lazy_init()
    return _C.exchange_device(_check_index(device))


def _maybe_exchange_device(device: int) -> int:
    """Like :func:`_exchange_device`, but a device that this process never used need not be set up."""
    if device < 0:
        return -1
    _lazy_init()
    return _C.maybe_exchange_device(_check_index(device))


class _DeviceGuard:
    """Context manager that makes the device with an index current; a negative index does nothing."""

    def __init__(self, index: int) -> None:
        self.idx = index
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        self.idx = _maybe_exchange_device(self.prev_idx)


class device(_DeviceGuard, DeviceContext):  # noqa: N801 (the name in torch.cuda)
    """Context manager that makes a device current in this thread.

    Args:
        device: a device, its text or its index. None and a negative index do nothing.

    Raises:
        DeviceTypeError: ``device`` is of another type.
        InvalidDeviceError: on entry, if there is no such device.
    """

    def __init__(self, device: Any) -> None:
        super().__init__(-1 if device is None else _get_device_index(device, optional=True))

    def __enter__(self) -> None:
        super().__enter__()


class device_of(device):  # noqa: N801 (the name in torch.cuda)
    """Context manager that makes the device of a tensor or storage current.

    Does nothing if the object lies elsewhere, on the cpu for example.

    Args:
        obj: a tensor or a storage.

    Raises:
        TypeError: ``obj`` is neither.
    """

    def __init__(self, obj: Any) -> None:
        if not isinstance(obj, (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)):
            raise TypeError(f"Expected a tensor or a storage, but got {obj!r} ({type(obj).__name__})")
        super().__init__(obj.device.index if obj.device.type == DEVICE_TYPE else -1)


def synchronize(device: Device = None) -> None:
    """Wait until everything submitted to a device, on all its streams, is done.

    Args:
        device: which one; the current one if None.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    _C.synchronize(_existing_index(device))


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Return what a device is.

    Args:
        device: which one; the current one if None.

    Raises:
        InvalidDeviceIdError: there is no such device. (It is an AssertionError, as CUDA's, and an
            InvalidDeviceError.)
    """
    properties: DeviceProperties = _properties.properties_of(_existing_id(device, "device id"))
    return properties


def _existing_id(device: Device, what: str) -> int:
    try:
        return _existing_index(device)
    except (InvalidDeviceError, torch.AcceleratorError) as error:
        raise InvalidDeviceIdError(f"Invalid {what}: {error}") from None


def _is_no_device(device: Device) -> bool:
    return device is not None and _get_device_index(device, optional=True) < 0


def get_device_name(device: Device = None) -> str | None:
    """Return the name of a device: see :class:`DeviceProperties`.

    Args:
        device: which one; the current one if None. A negative index does nothing: None is returned.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return None if _is_no_device(device) else get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int] | None:
    """Return the major and minor capability of a device: those of its chip.

    Args:
        device: which one; the current one if None. A negative index does nothing: None is returned.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    if _is_no_device(device):
        return None
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Return whether one device can read and write the memory of another directly.

    Raises:
        InvalidDeviceIdError: there is no such device; see :func:`get_device_properties`.
    """
    return _C.can_access_peer(_existing_id(device, "device id"), _existing_id(peer_device, "peer device id"))


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that autocast can use on the current device: its chip's. Does not initialise it.

    Raises:
        ConfigurationError: a setting has a bad value, or the chip's description cannot be used.
    """
    _C.register_what_waits()  # torch.autocast asks this first, and may cast fake tensors then
    return [getattr(torch, name) for name in _chip().amp_dtypes]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether the current device computes in bfloat16. False if there are none.

    Under the name cuda this initialises the devices, as it does on a GPU.

    Args:
        including_emulation: whether it counts that every dtype is computed, even if the chip lacks it.

    Raises:
        ConfigurationError: a setting has a bad value, or the chip's description cannot be used.
    """
    if not is_available():
        return False
    _initialize_as_cuda()
    return including_emulation or "bfloat16" in _chip().dtypes


def _initialize_as_cuda() -> None:
    # To CUDA these questions are a first use: no child that is forked afterwards can use the devices.
    if DEVICE_TYPE == config.CUDA_NAME:
        _lazy_init()


def is_tf32_supported() -> bool:
    """Return whether the current device's chip can round the operands of float32 matrix products to TF32.

    Here they are always computed in full. False if there are no devices. Under the name cuda this initialises
    the devices, as it does on a GPU.

    Raises:
        ConfigurationError: a setting has a bad value, or the chip's description cannot be used.
    """
    if not is_available():
        return False
    _initialize_as_cuda()
    return bool(_chip_figures()["tf32"])


def get_arch_list() -> list[str]:
    """Return what the kernels were made for: the names of the devices' chips; nothing without devices.

    There is one set of kernels for all chips, so a chip of the user's own is in the list as well. Does not
    initialise the devices. Under the name cuda, GPUs are there by their capabilities: ``"sm_90"``.

    Raises:
        ConfigurationError: a setting has a bad value, or the chip's description cannot be used.
    """
    if not is_available():
        return []
    if DEVICE_TYPE != config.CUDA_NAME:
        return _chip_names()
    names = []
    for index in range(_device_count()):
        chip = _chip(index)
        is_gpu = bool(_product_name(index))
        names.append(f"sm_{chip.capability_major}{chip.capability_minor}" if is_gpu else chip.name)
    return list(dict.fromkeys(names))


def _device_count_nvml() -> int:
    """Return how many devices the program sees, as :func:`device_count`; NVML is not asked."""
    return _device_count()


def _host_arch_key() -> str:
    """Return the host's architecture as PyTorch's builds spell it: ``"x86_64"`` or ``"aarch64"``."""
    return "aarch64" if platform.machine().lower() in ("aarch64", "arm64") else "x86_64"
