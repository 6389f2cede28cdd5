"""All changes to PyTorch where it has no extension point, and the entries where it has a registry.

Each stands with its reason and the upstream issue, to be removed when that is closed.
"""

from __future__ import annotations

import atexit
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
    _patch_profiler_exit()
    _end_profile_at_exit()


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


def _patch_profiler_exit() -> None:
    # profile.__exit__ synchronises the device before it ends the profile. Where that raises what had failed
    # on a stream, the profiler would stay on in this thread: its memory grows, and no other can be started.
    # Not reported upstream yet; CUDA's own profile has the same fault.
    profile = torch.autograd.profiler.profile
    original = profile.__exit__

    def __exit__(self: Any, exc_type: Any, exc_val: Any, exc_tb: Any) -> Any:  # noqa: N807
        try:
            return original(self, exc_type, exc_val, exc_tb)
        except Exception:
            # The failure is raised once, so that this time the profile ends.
            if torch.autograd._profiler_enabled():
                original(self, exc_type, exc_val, exc_tb)
            raise

    profile.__exit__ = __exit__  # type: ignore[method-assign]


def _end_profile_at_exit() -> None:
    # A profile that is still running when the interpreter ends makes PyTorch crash, whatever the device.
    # Not reported upstream yet.
    def end_profile() -> None:
        if torch.autograd._profiler_enabled():
            torch.autograd._disable_profiler()

    atexit.register(end_profile)
