"""Statistics of the allocators, device and pinned host memory: all of them are one source, the C++ core."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from torch.types import Device

from torch_loom import _C, config
from torch_loom.device._core.device_index import DEVICE_TYPE, _check_index, _existing_index, _get_device_index
from torch_loom.device._core.first_use import _device_count, _is_in_bad_fork, _lazy_init, is_initialized

__all__ = [
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
]


def _index_of_allocator(device: Device) -> int:
    """Return the index of the existing device that ``device`` means.

    Raises:
        InvalidDeviceError: there is no such device; under the name cuda a RuntimeError, as of CUDA's
            allocator, which prints the index, a single byte, as a character.
    """
    index = _get_device_index(device, optional=True)
    _lazy_init()
    if DEVICE_TYPE == config.CUDA_NAME and not 0 <= index < _device_count():
        raise RuntimeError(f"Invalid device argument {chr(index & 0xFF)}: did you call init?")
    return _check_index(index)


def _used_index(device: Device) -> int | None:
    """Return the index of the device that ``device`` means, or None if no device has been used yet."""
    if is_initialized() or _is_in_bad_fork():
        return _index_of_allocator(device)
    if device is not None:
        index = _get_device_index(device, optional=True)
        _check_index(index)
    return None


def _is_unused_cuda() -> bool:
    # CUDA's statistics are empty until it is initialised, and asking for them is no first use: a child that
    # is forked afterwards can use the devices.
    return DEVICE_TYPE == config.CUDA_NAME and not is_initialized()


# The groups and figures that the vendor of the name rbln has, and its counters.
_VENDORS_NAMES = frozenset(
    [
        f"{group}.{figure}"
        for group in ("allocated", "reserved", "active", "cached")
        for figure in ("current", "peak")
    ]
    + [f"{group}.total_{what}" for group in ("allocated", "reserved") for what in ("allocated", "freed")]
    + ["num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"]
)


def _all_stats(device: Device = None) -> OrderedDict[str, int]:
    """Return the statistics of a device's allocator under all their names, sorted as CUDA's are."""
    if (device is None and _device_count() == 0) or _is_unused_cuda():
        return OrderedDict()
    return OrderedDict(sorted(_C.memory_stats(_index_of_allocator(device)).items()))


def memory_stats(device: Device = None) -> OrderedDict[str, int]:
    """Return the statistics of a device's allocator, sorted by name. Sizes are bytes.

    Under the device name rbln there are the short names, four of the counters and ``lazy.*``, as the vendor
    has them.

    Short names: ``allocated`` and ``reserved``, each with ``.current``, ``.peak``, ``.total_allocated`` and
    ``.total_freed``; ``active`` and ``cached`` (reserved and not active), with ``.current`` and ``.peak``.

    CUDA's names: ``{allocation,segment,active,inactive_split}`` count, ``{allocated,reserved,active,
    inactive_split,requested}_bytes`` are sizes, each ``.{all,small_pool,large_pool}`` and each
    ``.{current,peak,allocated,freed}``; ``allocated.{all,…}`` is an older spelling of ``allocation``.
    ``oversize_allocations`` and ``oversize_segments`` (``.{current,peak,allocated,freed}``) count what is at
    least ``max_split_size`` large (−1: no limit).

    Counters: ``num_alloc_retries`` (the cache was flushed because the device had no memory), ``num_ooms``,
    ``num_sync_all_streams``, ``num_device_alloc`` and ``num_device_free``.

    All of these count device memory only. Under the lazy memory policy a new tensor is unmaterialised, with
    its contents on the host, until a device op needs it: ``lazy.pending_tensors`` storages are so now, and
    hold ``lazy.host_bytes`` of host memory (nothing for a tensor that was never written);
    ``lazy.materialized_bytes`` of device memory were taken at first uses since the start, which were
    ``lazy.materializations``.

    Empty if there are no devices, and under the name cuda until they have been used.

    Args:
        device: which one; the current one if None.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    stats = _all_stats(device)
    if DEVICE_TYPE != config.rbln.NAME:
        return stats
    return OrderedDict(
        (name, value) for name, value in stats.items() if name in _VENDORS_NAMES or name.startswith("lazy.")
    )


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """Return the statistics as dictionaries within dictionaries, cut at the dots of the names.

    The names are those of :func:`memory_stats`, CUDA's included under every device name.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    nested: dict[str, Any] = {}
    for name, value in _all_stats(device).items():
        *groups, figure = name.split(".")
        place = nested
        for group in groups:
            place = place.setdefault(group, {})
        place[figure] = value
    return nested


# What _C.memory_figure() counts.
_ALLOCATED, _MOST_ALLOCATED, _RESERVED, _MOST_RESERVED = range(4)


def _figure(device: Device, figure: int) -> int:
    # Programs ask for one of them at every step: the common case is one call.
    if device is None:
        value = _C.memory_figure(-1, figure)
        if value >= 0:
            return value
        if _device_count() == 0:
            return 0
    if _is_unused_cuda():
        return 0
    return _C.memory_figure(_index_of_allocator(device), figure)


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that tensors occupy on a device (the current one if None).

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return _figure(device, _ALLOCATED)


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes that tensors occupied on a device since start or reset.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return _figure(device, _MOST_ALLOCATED)


def memory_reserved(device: Device = None) -> int:
    """Return the bytes that the allocator holds on a device, in use or cached.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return _figure(device, _RESERVED)


def max_memory_reserved(device: Device = None) -> int:
    """Return the most bytes that the allocator held on a device since start or reset.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return _figure(device, _MOST_RESERVED)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return the free and the total bytes of a device (the current one if None).

    Unlike on CUDA, each process sees the full capacity: memory that other processes use counts as free.
    :func:`torch.loom.device_memory_used` returns what all processes use together.

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
    """Set the totals and counters of a device's statistics to zero. Does nothing before first use.

    The totals are ``.total_allocated`` and ``.total_freed``, ``.allocated`` and ``.freed``. What is in use,
    the peaks and ``lazy.*`` stay.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    index = _used_index(device)
    if index is not None:
        _C.reset_accumulated_memory_stats(index)


def reset_max_memory_allocated(device: Device = None) -> None:
    """Reset all peaks, with a FutureWarning: use :func:`reset_peak_memory_stats`.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    _warn_of_old_name("reset_max_memory_allocated", "reset_peak_memory_stats, which resets all peaks")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Device = None) -> None:
    """Reset all peaks, with a FutureWarning: use :func:`reset_peak_memory_stats`.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    _warn_of_old_name("reset_max_memory_cached", "reset_peak_memory_stats, which resets all peaks")
    reset_peak_memory_stats(device)


def _warn_of_old_name(name: str, instead: str) -> None:
    prefix = f"torch.{DEVICE_TYPE}"
    warnings.warn(f"{prefix}.{name} is deprecated: use {prefix}.{instead}", FutureWarning, stacklevel=3)


def memory_cached(device: Device = None) -> int:
    """Return :func:`memory_reserved`, with a FutureWarning: this is the name that it had in CUDA before.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    _warn_of_old_name("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: Device = None) -> int:
    """Return :func:`max_memory_reserved`, with a FutureWarning: this is the name that it had in CUDA before.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    _warn_of_old_name("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Return :func:`host_memory_stats` as nested dictionaries. Empty before first use."""
    return _C.host_memory_stats() if is_initialized() else {}


def host_memory_stats() -> dict[str, Any]:
    """Return the statistics of pinned host memory, by name. Empty before first use.

    ``allocations`` and ``allocated_bytes`` are the blocks that the allocator holds, in use or cached,
    ``active_requests`` and ``active_bytes`` those in use, each with ``.{current,peak,allocated,freed}``;
    block sizes are powers of two. ``num_host_alloc`` and ``num_host_free`` count what was taken and given
    back, ``host_alloc_time`` and ``host_free_time`` (``.{total,max,min,count,avg}``) how long that took, in
    microseconds. ``bucket_allocation`` lists the blocks by the logarithm of their size.
    """
    return OrderedDict(sorted(_flat("", host_memory_stats_as_nested_dict())))


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield prefix, value
        return
    for name, inner in value.items():
        yield from _flat(f"{prefix}.{name}" if prefix else name, inner)


def reset_peak_host_memory_stats() -> None:
    """Set the peaks of the pinned memory's statistics to the current values."""
    if is_initialized():
        _C.reset_peak_host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Set the totals and counters of the pinned memory's statistics to zero."""
    if is_initialized():
        _C.reset_accumulated_host_memory_stats()


_TABLE = (
    ("allocated_bytes", "Allocated memory", True),
    ("active_bytes", "Active memory", True),
    ("requested_bytes", "Requested memory", True),
    ("reserved_bytes", "GPU reserved memory", True),
    ("inactive_split_bytes", "Non-releasable memory", True),
    ("allocation", "Allocations", False),
    ("active", "Active allocs", False),
    ("segment", "GPU reserved segments", False),
    ("inactive_split", "Non-releasable allocs", False),
)
_POOLS = (("large_pool", "      from large pool"), ("small_pool", "      from small pool"))
_FIGURES = ("current", "peak", "allocated", "freed")
_WIDTH = 75


def _cell(value: int, largest: int, is_size: bool) -> str:
    """Return a figure in the unit in which the first of its column can be read."""
    step, limit, units = (
        (1024, 768, ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB")) if is_size else (1000, 750, " KM")
    )
    unit = 0
    while largest >= limit * step and unit + 1 < len(units):
        value //= step
        largest //= step
        unit += 1
    return f"{value:6d} {units[unit]}" if is_size else f"{value:7d} {units[unit]} "


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Return the allocator's statistics as a table to be printed, in the layout of CUDA's.

    Args:
        device: which one; the current one if None.
        abbreviated: leave out the lines of the small and the large pool.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    index = _index_of_allocator(device)
    stats = _all_stats(index)

    def line(label: str, group: str, pool: str, is_size: bool) -> str:
        first = f"{group}.all." if pool else f"{group}."
        cells = " | ".join(
            _cell(stats[f"{group}{pool}.{figure}"], stats[f"{first}{figure}"], is_size) for figure in _FIGURES
        )
        return f" {label:<21} | {cells} "

    name = DEVICE_TYPE.upper()
    heading = f" {'':16} PyTorch {name} memory summary, device ID {index:<17d} "
    ooms, retries = stats["num_ooms"], stats["num_alloc_retries"]
    counts = f"  {'':9} {name} OOMs: {ooms:<12d} | {'':6} {DEVICE_TYPE}Malloc retries: {retries:<8d}  "
    lines = ["=" * _WIDTH, heading, "-" * _WIDTH, counts, "=" * _WIDTH]
    lines.append("        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ")
    for group, label, is_size in _TABLE:
        lines.append("-" * _WIDTH)
        lines.append(line(label, group, ".all", is_size))
        if not abbreviated:
            lines += [line(pool_label, group, f".{pool}", is_size) for pool, pool_label in _POOLS]
    for group, label in (
        ("oversize_allocations", "Oversize allocations"),
        ("oversize_segments", "Oversize GPU segments"),
    ):
        lines += ["-" * _WIDTH, line(label, group, "", False)]
    lines.append("=" * _WIDTH)
    # Another device name than CUDA's may be too long, or too short, for the places of the headings.
    return "".join(f"|{text.ljust(_WIDTH)[:_WIDTH]}|\n" for text in lines)
