"""What would give another library the address of a tensor under CUDA's name: refused, or marked as no GPU's.

Only PyTorch reads the memory of these devices. A library that takes ``kDLCUDA`` for what it says would read
the address on a GPU.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
import torch.utils.dlpack
from torch.utils.dlpack import DLDeviceType

from torch_loom import config
from torch_loom.patches.declared import CUDA_NAME

_CUDA = int(DLDeviceType.kDLCUDA)
_FOREIGN = int(DLDeviceType.kDLExtDev)

# Where a capsule has the device type. A versioned one begins with a version, two pointers and flags.
_OFFSETS = {b"dltensor": 8, b"dltensor_versioned": 8 + 8 + 8 + 8 + 8}

_get_name = ctypes.pythonapi.PyCapsule_GetName
_get_name.restype, _get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def restrict() -> None:
    """Put the restrictions in place."""
    _refuse_array_interface()
    _mark_capsules()
    CUDA_NAME.remove(torch.Tensor, "__dlpack_c_exchange_api__")


def _refuse_array_interface() -> None:
    original: Any = torch.Tensor.__cuda_array_interface__

    def interface(self: torch.Tensor) -> Any:
        if self.device.type != config.CUDA_NAME:
            return original.__get__(self)
        raise AttributeError(
            "__cuda_array_interface__ would have another library read this tensor on a GPU, and there is "
            "none: the device is torch-loom's. Use tensor.cpu()."
        )

    CUDA_NAME.put(torch.Tensor, __cuda_array_interface__=property(interface))


def _mark_capsules() -> None:
    # Consumers refuse kDLExtDev by themselves, as __dlpack_device__ says it as well. torch.from_dlpack, which
    # would take it for PrivateUse1, gets it back as it was.
    def marking(make: Any) -> Any:
        @functools.wraps(make)
        def make_marked(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return _replaced(make(tensor, *args, **kwargs), _CUDA, _FOREIGN)

        return make_marked

    read = torch._C._from_dlpack

    @functools.wraps(read)
    def read_marked(capsule: Any, *args: Any, **kwargs: Any) -> Any:
        return read(_replaced(capsule, _FOREIGN, _CUDA), *args, **kwargs)

    as_array = torch.asarray

    @functools.wraps(as_array)
    def as_array_marked(obj: Any, **kwargs: Any) -> torch.Tensor:
        # It reads a capsule in C++.
        return as_array(torch._C._from_dlpack(obj) if _is_capsule(obj) else obj, **kwargs)

    make = marking(torch._C._to_dlpack)
    CUDA_NAME.put(
        torch._C,
        _to_dlpack=make,
        _to_dlpack_versioned=marking(torch._C._to_dlpack_versioned),
        _from_dlpack=read_marked,
    )
    CUDA_NAME.put(torch, asarray=as_array_marked, to_dlpack=make)
    CUDA_NAME.put(torch.utils.dlpack, to_dlpack=make)


def _is_capsule(value: Any) -> bool:
    return type(value).__name__ == "PyCapsule"


def _replaced(capsule: Any, old: int, new: int) -> Any:
    if not _is_capsule(capsule):
        return capsule
    name = _get_name(capsule)
    if name in _OFFSETS:
        place = ctypes.c_int32.from_address(_get_pointer(capsule, name) + _OFFSETS[name])
        if place.value == old:
            place.value = new
    return capsule
