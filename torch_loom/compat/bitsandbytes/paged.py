"""Memory of paged optimizers, and what the library does with it outside of its ops.

On a GPU this is managed memory, which host and device page between them; PyTorch sees tensors of the host
over it, and the library's ops take them beside tensors of the device.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch

__all__ = ["install"]

_allocations: list[torch.Tensor] = []
"""What the library was given. It has no call that gives memory back."""


def install(library: Any) -> None:
    """Give the library's handle of its compiled code the functions that are called by their names."""
    library.cget_managed_ptr = _allocate
    library.cprefetch = _prefetch
    library.cfill_fp32 = _fill_float32
    library.cfill_uint8 = _fill_uint8
    library.c_mul_fp32 = _multiply_float32


def _allocate(num_bytes: ctypes.c_size_t) -> int:
    memory = torch.empty(num_bytes.value, dtype=torch.uint8, device="cpu")
    _allocations.append(memory)
    return memory.data_ptr()


def _prefetch(address: ctypes.c_void_p, num_bytes: ctypes.c_size_t, device: ctypes.c_int32) -> None:
    """Nothing moves: the memory is the host's."""


def _fill_float32(address: ctypes.c_void_p, _: None, value: ctypes.c_float, count: ctypes.c_int64) -> None:
    _view(address, count, ctypes.c_float)[:] = value.value


def _fill_uint8(address: ctypes.c_void_p, _: None, value: ctypes.c_uint8, count: ctypes.c_int64) -> None:
    _view(address, count, ctypes.c_uint8)[:] = value.value


def _multiply_float32(
    address: ctypes.c_void_p, other: ctypes.c_void_p, value: ctypes.c_float, count: ctypes.c_int64
) -> None:
    _view(address, count, ctypes.c_float)[:] *= _view(other, count, ctypes.c_float)


def _view(address: ctypes.c_void_p, count: ctypes.c_int64, element: Any) -> np.ndarray[Any, Any]:
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(element)), shape=(count.value,))
