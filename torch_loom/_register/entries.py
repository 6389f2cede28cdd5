"""What is registered with PyTorch's registries, and the patches where it has none."""

from __future__ import annotations

import atexit
import re
import sys
from multiprocessing import reduction
from typing import Any

import torch

from torch_loom import late
from torch_loom._register import communication
from torch_loom.patches import eager, split_groups, symmetric_pads

# The names under which checkpoints of these devices are written: the default and the vendor's.
_KNOWN_NAMES = ("loom", "rbln")

# Before PyTorch's own entry for this device (23) and unlike any other: equal priorities cannot be sorted.
_PACKAGE_PRIORITY = 19


def register(device_type: str) -> None:
    """Make all entries and apply all patches, for the device type with this name."""
    _register_checkpoint_names(device_type)
    _end_profile_at_exit()
    _register_reductions()
    eager.name_in_dlpack.apply()
    eager.profiled_figures.apply()
    eager.shared_storages.apply()
    eager.profile_ends.apply()
    communication.provide(device_type)
    eager.captured_steps.apply()
    legacy_types = late.lazily("torch_loom.cuda.names.legacy_types")
    eager.default_tensor_type.apply(lambda kind: isinstance(kind, legacy_types.TensorType))
    eager.other_default_dtypes.apply()
    if torch.distributed.is_available():
        symmetric_pads.of_known_ranks.apply()
    if torch.distributed.is_available() and torch.distributed.is_gloo_available():
        split_groups.own_stores.apply()
        split_groups.copied_options.apply()


def _register_reductions() -> None:
    # torch.multiprocessing shares memory of the CPU and of CUDA; for other devices its reducer of storages
    # fails. multiprocessing's registry of reducers takes another.
    ipc = late.lazily("torch_loom.device.ipc")
    reduction.register(torch.UntypedStorage, lambda storage: ipc._reduce_storage(storage))
    for kind in (torch.Tensor, torch.nn.Parameter):
        reduction.register(kind, lambda tensor: ipc._reduce_tensor(tensor))


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


def _end_profile_at_exit() -> None:
    # A profile that is still running when the interpreter ends makes PyTorch crash, whatever the device.
    # Not reported upstream yet.
    def end_profile() -> None:
        if torch._C._autograd._profiler_enabled():
            torch._C._autograd._disable_profiler()

    atexit.register(end_profile)


def end_cuda_sanitizer(device_type: str) -> None:
    """End what TORCH_CUDA_SANITIZER began, before this package's takes the place of ``torch.cuda``'s."""
    # TORCH_CUDA_SANITIZER makes the import of torch watch torch.cuda, without which each op then fails. Ours
    # reads the same variable.
    if torch.version.cuda is not None and device_type != "cuda":
        return
    theirs = sys.modules.get("torch.cuda._sanitizer")
    if theirs is not None and theirs.cuda_sanitizer.enabled:
        theirs.cuda_sanitizer.disable()
