"""The module ``torch.rbln.memory``: ``torch.loom.memory``, with the vendor's names and meanings."""
# ruff: noqa: F403

from __future__ import annotations

from typing import Any

import torch
from torch.types import Device

from torch_loom import _C
from torch_loom.device import memory as _memory
from torch_loom.device._core.device_index import DEVICE_TYPE, _existing_index
from torch_loom.device._core.first_use import _device_count
from torch_loom.device.memory import *
from torch_loom.device.memory import stats as _stats
from torch_loom.errors import DeviceLayoutError, DummyDeviceError
from torch_loom.rbln import chiplets as _chiplets
from torch_loom.rbln.devices import is_dummy_device
from torch_loom.rbln.host_memory import huge_host_empty
from torch_loom.rbln.offloading import offload, release_offload_temp_storage

__all__ = [
    *_memory.__all__,
    "bind_device_memory",
    "huge_host_empty",
    "mem_get_info_per_chiplet",
    "memory_stats_per_chiplet",
    "offload",
    "release_offload_temp_storage",
    "set_device_layout_like",
]


def __getattr__(name: str) -> Any:
    return getattr(_memory, name)


def memory_stats_per_chiplet(device: Device = None) -> dict[str, int]:
    """Return the statistics of :func:`memory_stats` by chiplet: ``npu.0.chiplet.0.allocated.current`` …

    A device's memory counts as spread evenly over its chiplets, so that they add up to the statistics of the
    device. ``npu.0`` is the first NPU of the device. What is counted, ``num_ooms`` for example, is on the
    first chiplet. Empty if there are no devices.

    Args:
        device: which one; the current one if None.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    found = _stats.memory_stats(device)
    return _chiplets.stats(_existing_index(device), found) if found else {}


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return the free and the total bytes of a device, of all its NPUs together.

    Raises:
        InvalidDeviceError: there is no such device.
        NoDeviceError: there are no devices.
        DummyDeviceError: under RBLN_DUMMY_DEVICE no NPU can be asked.
    """
    _refuse_dummy("mem_get_info()")
    return _stats.mem_get_info(device)


def mem_get_info_per_chiplet(device: Device = None) -> dict[str, int]:
    """Return what :func:`mem_get_info` does by chiplet and NPU, in bytes.

    ``npu.<n>.chiplet.<c>.`` with ``total``, ``used``, ``free``, ``largest_free`` and ``largest_free_huge``;
    ``npu.<n>.`` with ``total``, ``used``, ``free``, ``granularity`` and ``huge_granularity``. Memory is not
    fragmented here, so that ``largest_free`` is ``free``; no chip has huge granules (0).

    Raises:
        InvalidDeviceError: there is no such device.
        NoDeviceError: there are no devices.
        DummyDeviceError: under RBLN_DUMMY_DEVICE.
    """
    _refuse_dummy("mem_get_info_per_chiplet()")
    return _chiplets.info(_existing_index(device))


def _refuse_dummy(call: str) -> None:
    if is_dummy_device():
        raise DummyDeviceError(
            f"{call} asks an NPU for its memory, and RBLN_DUMMY_DEVICE has none; memory_stats() has the "
            "allocator's figures"
        )


def memory_summary(device: Device = None) -> str:
    """Return a table of the allocator's statistics: a row for each chiplet of each NPU, and the sum.

    :func:`torch.loom.memory_summary` has the table of CUDA's layout.

    Args:
        device: which one; the current one if None.

    Returns:
        The table in MiB, or one line where there are no devices.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    if _device_count() == 0:
        return "No memory statistics: there are no rbln devices\n"
    return _chiplets.table(_existing_index(device), _stats.memory_stats(device))


def bind_device_memory(tensor: torch.Tensor) -> None:
    """Take the device memory of a tensor now, and not at the first op that needs it.

    For who reads it without an op, by its address: a library of collectives, a disk. Its contents come with
    it. A tensor that has device memory keeps it.

    Args:
        tensor: contiguous, and all of its storage.

    Raises:
        DeviceLayoutError: it is no rbln tensor, or a part of a storage.
        OutOfMemoryError: the device has no such memory.
    """
    _check_whole("bind_device_memory", "tensor", tensor)
    _ = tensor.data_ptr()  # who asks for the address is given memory


def set_device_layout_like(target: torch.Tensor, ref: torch.Tensor) -> None:
    """Take device memory for ``target`` in the layout that ``ref`` has there; it keeps its own size.

    All layouts are flat here, so that a copy between the two stays on the device from then on. Nothing of
    ``ref`` is copied.

    Args:
        target, ref: of one dtype, on one device, each contiguous and all of its storage. ``ref`` has device
            memory.

    Raises:
        DeviceLayoutError: a tensor is none of these.
        OutOfMemoryError: the device has no such memory.
    """
    call = "set_device_layout_like"
    _check_whole(call, "target", target)
    _check_whole(call, "ref", ref)
    if target.device != ref.device:
        raise DeviceLayoutError(
            f"{call}: target and ref must be on the same device, but are on {target.device} and {ref.device}"
        )
    if target.dtype != ref.dtype:
        raise DeviceLayoutError(
            f"{call}: target and ref must have the same dtype, but have {target.dtype} and {ref.dtype}"
        )
    if ref.numel() and not _C.owns_device_memory(ref.untyped_storage()._cdata):
        raise DeviceLayoutError(
            f"{call}: ref has no device memory yet; torch.rbln.bind_device_memory(ref) takes it"
        )
    _ = target.data_ptr()


def _check_whole(call: str, name: str, tensor: torch.Tensor) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.device.type != DEVICE_TYPE:
        what = f"on {tensor.device}" if isinstance(tensor, torch.Tensor) else f"a {type(tensor).__name__}"
        raise DeviceLayoutError(f"{call}: {name} must be a tensor on an {DEVICE_TYPE} device, but is {what}")
    is_whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
    if not is_whole or not tensor.is_contiguous() or tensor.storage_offset():
        raise DeviceLayoutError(
            f"{call}: {name} must be all of its storage and contiguous, but has shape {tuple(tensor.shape)}, "
            f"strides {tensor.stride()} and offset {tensor.storage_offset()} in a storage of "
            f"{tensor.untyped_storage().nbytes()} bytes. Call it on the tensor that this is a part of"
        )
