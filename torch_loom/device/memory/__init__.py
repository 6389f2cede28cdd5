"""Device memory: how much is used, limits, pools, history, and giving it back. All figures are bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.types import Device

from torch_loom import _C, config, late
from torch_loom.device._core.device_index import DEVICE_TYPE, _existing_index
from torch_loom.device._core.first_use import _lazy_init, is_initialized  # noqa: F401

# torch.cuda.memory has the underscored names too, and tools call them.
from torch_loom.device.memory import allocators, history, pools, stats
from torch_loom.device.memory.allocators import *  # noqa: F403
from torch_loom.device.memory.allocators import (  # noqa: F401
    _free_mutex,
    _get_current_allocator,
    _host_allocator,
)
from torch_loom.device.memory.history import *  # noqa: F403
from torch_loom.device.memory.history import (  # noqa: F401
    _allocation_traceback,
    _dump_snapshot,
    _get_memory_metadata,
    _record_memory_history,
    _set_memory_metadata,
    _snapshot,
)
from torch_loom.device.memory.pools import *  # noqa: F403
from torch_loom.device.memory.stats import *  # noqa: F403
from torch_loom.device.memory.stats import _used_index

if TYPE_CHECKING:
    from torch_loom.device.telemetry import list_gpu_processes

__all__ = [
    "empty_cache",
    "get_per_process_memory_fraction",
    "list_gpu_processes",
    "set_per_process_memory_fraction",
]
__all__ += allocators.__all__
__all__ += history.__all__
__all__ += pools.__all__
__all__ += stats.__all__

_plots = late.lazily("torch_loom.device.memory.plots")
NAMES_OF_LATE = {
    "list_gpu_processes": late.lazily("torch_loom.device.telemetry"),
    "_save_memory_usage": _plots,
    "_save_segment_usage": _plots,
}

__getattr__, __dir__ = late.names(__name__, globals(), NAMES_OF_LATE)


def empty_cache(device: Device = None) -> None:
    """Give cached memory that no tensor uses back to the device, after waiting for its streams.

    Only whole segments go back: a segment that is partly in use stays.

    Args:
        device: of which device; of all of them if None, as CUDA does, but under the device name rbln of the
            current one, as its vendor's package does. Does nothing before first use.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    index = _used_index(device)
    if index is None:
        return
    is_all = device is None and DEVICE_TYPE != config.rbln.NAME
    for each in range(_C.device_count()) if is_all else (index,):
        _C.empty_cache(each)


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Limit what this process takes of a device's memory; beyond it, out of memory is raised.

    Args:
        fraction: of the device's total, 0 … 1.
        device: which one; the current one if None.

    Raises:
        TypeError: ``fraction`` is no float.
        ValueError: ``fraction`` is outside 0 … 1.
        InvalidDeviceError: there is no such device.
    """
    _lazy_init()
    index = _existing_index(device)
    if not isinstance(fraction, float):
        raise TypeError(
            f"Invalid type for fraction argument, must be `float`, got {type(fraction).__name__} {fraction!r}"
        )
    _C.set_memory_fraction(index, fraction)


def get_per_process_memory_fraction(device: Device = None) -> float:
    """Return the share of a device's memory that this process may take, 1.0 if none was set.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    _lazy_init()
    return _C.memory_fraction(_existing_index(device))


def _set_allocator_settings(env: str) -> None:
    """Change the settings that ``PYTORCH_ALLOC_CONF`` gave, with checks that name key and allowed values.

    ``torch._C._accelerator_setAllocatorSettings`` does the same; PyTorch's own parser then speaks first.

    Raises:
        ValueError: there is no such key, or it has a bad value.
    """
    _C.check_alloc_conf(env)
    torch._C._accelerator_setAllocatorSettings(env)


def _attach_out_of_memory_observer(observer: Callable[[int, int, int, int], Any]) -> None:
    """Have ``observer`` called when an allocation fails, before the error is raised.

    It gets the device's index, the bytes that were to be taken from it, those that the process may take in
    all, and those that are free on it. What it raises is printed and does not replace the error. It stays
    attached.

    Raises:
        TypeError: ``observer`` cannot be called.
    """
    if not callable(observer):
        raise TypeError(f"observer must be callable, got {type(observer).__name__} {observer!r}")
    _lazy_init()
    _C.attach_out_of_memory_observer(observer)
