"""Device memory: how much is used, limits, pools, history, and giving it back. All figures are bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.types import Device

from torch_loom import _C

# torch.cuda.memory has the underscored names too, and tools call them.
from torch_loom.device import _memory_history, _memory_pools, _memory_stats
from torch_loom.device._init import _lazy_init
from torch_loom.device._memory_history import *  # noqa: F403
from torch_loom.device._memory_history import (  # noqa: F401
    _allocation_traceback,
    _dump_snapshot,
    _get_memory_metadata,
    _record_memory_history,
    _set_memory_metadata,
    _snapshot,
)
from torch_loom.device._memory_pools import *  # noqa: F403
from torch_loom.device._memory_stats import *  # noqa: F403
from torch_loom.device._memory_stats import _used_index
from torch_loom.device._utils import DEVICE_TYPE, _existing_index
from torch_loom.errors import DeviceTypeError

__all__ = [
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "set_per_process_memory_fraction",
]
__all__ += _memory_history.__all__
__all__ += _memory_pools.__all__
__all__ += _memory_stats.__all__


def empty_cache(device: Device = None) -> None:
    """Give cached memory that no tensor uses back to the device, after waiting for its streams.

    Only whole segments go back: one of which a part is in use stays.

    Args:
        device: of which device; of the current one if None. Does nothing before first use.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    index = _used_index(device)
    if index is not None:
        _C.empty_cache(index)


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


def caching_allocator_alloc(
    size: int, device: Device = None, stream: torch.Stream | int | None = None
) -> int:
    """Allocate device memory for another library; :func:`caching_allocator_delete` frees it.

    Args:
        size: bytes.
        device: which one; the current one if None.
        stream: the stream that uses it, or its id; the current stream if None.

    Returns:
        The address, 0 for 0 bytes.

    Raises:
        TypeError: ``size`` is no int, or ``stream`` neither stream nor id.
        ValueError: ``size`` is negative, or there is no such stream.
        DeviceTypeError: ``stream`` is another device's.
        InvalidDeviceError: there is no such device.
        torch.OutOfMemoryError: there is not as much memory.
    """
    index = _existing_index(device)
    if not isinstance(size, int) or isinstance(size, bool):
        raise TypeError(f"size must be an int, got {type(size).__name__} {size!r}")
    if not 0 <= size < 2**63:
        raise ValueError(f"size must be 0 … 2**63 - 1 bytes, got {size}")
    if stream is None:
        stream = torch.accelerator.current_stream(index)
    if isinstance(stream, torch.Stream):
        if stream.device != torch.device(DEVICE_TYPE, index):
            raise DeviceTypeError(f"stream must be one of {DEVICE_TYPE}:{index}, got one of {stream.device}")
        stream = stream.stream_id
    if not isinstance(stream, int):
        raise TypeError(f"stream must be a Stream or the id of one, got {type(stream).__name__} {stream!r}")
    return _C.raw_alloc(size, index, stream)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free what :func:`caching_allocator_alloc` returned; 0 is allowed and does nothing.

    Raises:
        TypeError: ``mem_ptr`` is no int.
        ValueError: it is not the address of a live allocation.
    """
    if not isinstance(mem_ptr, int) or isinstance(mem_ptr, bool):
        raise TypeError(f"mem_ptr must be an int, got {type(mem_ptr).__name__} {mem_ptr!r}")
    if not 0 <= mem_ptr < 2**64:
        raise ValueError(f"mem_ptr must be an address, got {mem_ptr}")
    _C.raw_delete(mem_ptr)


def get_allocator_backend() -> str:
    """Return the name of the allocator: ``"native"``, there is no other."""
    return "native"


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
