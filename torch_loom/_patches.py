"""All changes to PyTorch where it has no extension point, and the entries where it has a registry.

Each stands with its reason and the upstream issue, to be removed when that is closed.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils.dlpack import DLDeviceType

# The names under which checkpoints of these devices are written: the default one and the vendor's.
_KNOWN_NAMES = ("loom", "rbln")

# Before PyTorch's own entry for this device (23) and unlike any other: equal priorities cannot be sorted.
_PACKAGE_PRIORITY = 19


def apply(device_type: str) -> None:
    """Apply all of them, for the device type with this name."""
    _patch_dlpack_device(device_type)
    _register_checkpoint_names(device_type)
    _patch_is_shared(device_type)
    _register_reductions()


def _patch_dlpack_device(device_type: str) -> None:
    # Tensor.__dlpack_device__ compares the device type with the literal "privateuse1", which no renamed
    # backend has, so that torch.from_dlpack and other consumers raise "Unknown device type".
    # pytorch/pytorch PR #195815.
    original = torch.Tensor.__dlpack_device__

    def __dlpack_device__(self: torch.Tensor) -> Any:  # noqa: N807
        if has_torch_function((self,)):
            return handle_torch_function(torch.Tensor.__dlpack_device__, (self,), self)
        if self.device.type != device_type:
            return original(self)
        return DLDeviceType.kDLExtDev, self.device.index or 0

    __dlpack_device__.__doc__ = original.__doc__
    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]


def _patch_is_shared(device_type: str) -> None:
    # The C++ method knows of shared CPU memory and of CUDA's, and says False of other devices' memory, which
    # can be shared as it is. No upstream issue.
    original = torch.UntypedStorage.is_shared

    def is_shared(self: torch.UntypedStorage) -> bool:
        return self.device.type == device_type or original(self)

    is_shared.__doc__ = original.__doc__
    torch.UntypedStorage.is_shared = is_shared  # type: ignore[method-assign, assignment]


def _register_reductions() -> None:
    # torch.multiprocessing shares memory of the CPU and of CUDA; for other devices its reducer of storages
    # fails. multiprocessing's registry of reducers takes another.
    from torch_loom.device import ipc

    ipc._register_reductions()


def _register_checkpoint_names(device_type: str) -> None:
    # A checkpoint written under one name of the device loads under another, onto the same index.
    names = "|".join(name for name in _KNOWN_NAMES if name != device_type)
    pattern = re.compile(rf"(?:{names})(?::(\d+))?")

    def tag(storage: Any) -> None:
        return None

    def restore(storage: Any, location: str) -> Any:
        match = pattern.fullmatch(location)
        if match is None:
            return None
        # PyTorch's own entry checks the index and copies.
        here = device_type if match[1] is None else f"{device_type}:{match[1]}"
        return torch.serialization.default_restore_location(storage, here)  # type: ignore[no-untyped-call]

    torch.serialization.register_package(_PACKAGE_PRIORITY, tag, restore)
