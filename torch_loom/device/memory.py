"""Device memory: how much is used, and giving it back. All figures are bytes."""

from __future__ import annotations

from torch.types import Device

from torch_loom import _C
from torch_loom.device._init import _device_count, _is_in_bad_fork, _lazy_init, is_initialized
from torch_loom.device._utils import _check_index, _existing_index, _get_device_index

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]


def _used_index(device: Device) -> int | None:
    """Return the index of the device that ``device`` means, or None if no device has been used yet."""
    if is_initialized() or _is_in_bad_fork():
        return _existing_index(device)
    if device is not None:
        index = _get_device_index(device, optional=True)
        _check_index(index)
    return None


def empty_cache(device: Device = None) -> None:
    """Give cached memory that no tensor uses back to the device.

    Args:
        device: of which device; of all devices, as in CUDA, if None. Does nothing before first use.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    index = _used_index(device)
    if index is None:
        return
    for each in range(_device_count()) if device is None else (index,):
        _C.empty_cache(each)


def memory_stats(device: Device = None) -> dict[str, int]:
    """Return the statistics of a device's allocator, by name.

    The names are CUDA's (``allocated_bytes.all.current``, …) and these short ones: ``allocated`` and
    ``reserved``, each with ``.current``, ``.peak``, ``.total_allocated`` and ``.total_freed``; ``active`` and
    ``cached``, with ``.current`` and ``.peak``; ``num_alloc_retries``, ``num_ooms``, ``num_device_alloc`` and
    ``num_device_free``. Sizes are bytes. Empty if there are no devices.

    All of these count device memory only. Under the lazy memory policy a new tensor waits, with its contents
    on the host, until a device op needs it: ``lazy.pending_tensors`` storages wait now, and hold
    ``lazy.host_bytes`` of host memory (nothing for a tensor that was never written);
    ``lazy.materialized_bytes`` of device memory were taken at first uses since the start, which were
    ``lazy.materializations``.

    Args:
        device: which one; the current one if None.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    if device is None and _device_count() == 0:
        return {}
    return _C.memory_stats(_existing_index(device))


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that tensors occupy on a device (the current one if None).

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes that tensors occupied on a device since start or reset.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: Device = None) -> int:
    """Return the bytes that the allocator holds on a device, in use or cached.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: Device = None) -> int:
    """Return the most bytes that the allocator held on a device since start or reset.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return the free and the total bytes of a device (the current one if None).

    Raises:
        InvalidDeviceError: there is no such device.
        NoDeviceError: there are no devices.
    """
    _lazy_init()
    free_bytes, total_bytes = _C.mem_get_info(_existing_index(device))
    return free_bytes, total_bytes


def reset_peak_memory_stats(device: Device = None) -> None:
    """Set the peaks of a device's statistics to the current values. Does nothing before first use.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    index = _used_index(device)
    if index is not None:
        _C.reset_peak_memory_stats(index)


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Set the totals and counts of a device's statistics to zero. Does nothing before first use.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    index = _used_index(device)
    if index is not None:
        _C.reset_accumulated_memory_stats(index)
