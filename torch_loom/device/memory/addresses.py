"""Tensors over device memory that the program knows by its address."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torch_loom import _C
from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device._core.first_use import _lazy_init
from torch_loom.device.memory.history import memory_snapshot

__all__: list[str] = []


def _create_tensor_from_ptr(data_ptr: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return a contiguous tensor over memory that another tensor, or the program, has allocated.

    It does not keep the memory: the other tensor must live as long as it is used. The name is torch-rbln's.

    Args:
        data_ptr: the address of its first element, such as another tensor's ``data_ptr()``.
        shape: its sizes.
        dtype: its dtype.

    Raises:
        TypeError: an argument has another type.
        ValueError: the bytes from ``data_ptr`` on do not lie in one allocated block of a device.
    """
    if not isinstance(data_ptr, int) or not isinstance(dtype, torch.dtype):
        raise TypeError(f"expected an address and a dtype, but got {data_ptr!r} and {dtype!r}")
    sizes = torch.Size(shape)
    if any(size < 0 for size in sizes):
        raise ValueError(f"shape must not have negative sizes, got {tuple(sizes)}")
    num_bytes = math.prod(sizes) * dtype.itemsize
    _lazy_init()
    device = torch.device(DEVICE_TYPE, _device_of(data_ptr, num_bytes) if num_bytes else _C.current_device())
    tensor = torch.empty(0, dtype=dtype, device=device)
    if num_bytes == 0:
        return tensor.reshape(sizes)
    storage = torch._C._construct_storage_from_data_pointer(data_ptr, device, num_bytes)
    return tensor.set_(storage, 0, sizes)  # type: ignore[call-overload, no-any-return]


def _device_of(address: int, num_bytes: int) -> int:
    for segment in memory_snapshot(include_traces=False):
        if not segment["address"] <= address < segment["address"] + segment["total_size"]:
            continue
        for block in segment["blocks"]:
            is_within = block["address"] <= address <= address + num_bytes <= block["address"] + block["size"]
            if is_within and block["state"] == "active_allocated":
                index: int = segment["device"]
                return index
    raise ValueError(
        f"the {num_bytes} bytes at {address:#x} do not lie in one allocated block of a {DEVICE_TYPE} device"
    )
