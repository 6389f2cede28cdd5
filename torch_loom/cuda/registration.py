"""The devices as CUDA's: ``torch.cuda`` answers with our functions where we have them.

Modules that ``import torch`` has loaded hold ``torch.cuda`` and its submodules already. So their contents are
replaced and they stay the same objects; names that we do not have keep PyTorch's own.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

import torch

from torch_loom import config, errors
from torch_loom.patches.declared import CUDA_NAME

NAME = config.CUDA_NAME

# A module's own, and what is the same in every module.
_KEPT = frozenset(
    {"__name__", "__file__", "__path__", "__spec__", "__loader__", "__package__", "__cached__", "__dir__"}
)

# Functions of torch.cuda that answer as on a GPU, given the functions of torch._C that they call.
_PYTORCHS_OWN = {
    "torch.cuda": {
        *("CudaError", "DeferredCudaCallError", "check_error", "cudaStatus", "cudart"),
        *("get_arch_list", "get_gencode_flags", "is_available"),
    },
    "torch.cuda.nccl": {"version"},
    "torch.cuda.profiler": {"check_error", "cudart"},
}

# PyTorch's own stay: they stand on torch.amp, which knows this device, and warn that they are deprecated.
_THEIRS = frozenset({"amp"})


def take_over(module: ModuleType) -> None:
    """Put the device module in the place of ``torch.cuda``."""
    for submodule in module.SUBMODULES:
        vars(getattr(module, submodule))  # those that are imported late import PyTorch's of the same name
    loaded = {name: sys.modules.get(f"{torch.cuda.__name__}.{name}") for name in module.SUBMODULES}
    _overlay(torch.cuda, module)
    for submodule, theirs in loaded.items():
        if theirs is not None and submodule in _THEIRS:
            CUDA_NAME.put(torch.cuda, **{submodule: theirs})
            continue
        ours = getattr(module, submodule)
        if theirs is None or submodule.startswith("_"):
            # PyTorch lacks it, or its names make sense only together. What ours lacks is PyTorch's: its own
            # modules import private names.
            sys.modules[f"{torch.cuda.__name__}.{submodule}"] = ours
            for name, value in vars(theirs).items() if theirs is not None else ():
                vars(ours).setdefault(name, value)
        else:
            _overlay(theirs, ours)
            CUDA_NAME.put(torch.cuda, **{submodule: theirs})


def _overlay(theirs: ModuleType, ours: ModuleType) -> None:
    kept = _KEPT | _PYTORCHS_OWN.get(theirs.__name__, set())
    # What PyTorch's module imports stays: functions that we do not have call torch._C by the name that ours
    # has for torch_loom._C.
    kept |= {name for name, value in vars(theirs).items() if isinstance(value, ModuleType)}
    kept -= set(getattr(ours, "SUBMODULES", ()))
    names: dict[str, Any] = {name: value for name, value in vars(ours).items() if name not in kept}
    names |= {name: getattr(ours, name) for name in getattr(ours, "NAMES_OF_LATE", ())}
    if "__all__" in names:
        names["__all__"] = [*dict.fromkeys([*getattr(theirs, "__all__", ()), *names["__all__"]])]
    vars(theirs).update(names)


def patch(module: ModuleType) -> None:
    """Apply what only CUDA's name needs, beside what holds under any."""
    errors.DeferredCallError.cuda_type = torch.cuda.DeferredCudaCallError
    errors.raise_cuda_types()
    _patch_storages()
    # Imported under this name only, and when the extension is known to load.
    from torch_loom.cuda import (
        answers,
        exchange,
        functions,
        kernels,
        nccl,
        nvml,
        runtime,
        sharing,
    )

    functions.provide(module)
    runtime.provide(module.profiler.start, module.profiler.stop)
    exchange.restrict()
    sharing.install()
    answers.give()
    kernels.find_compilers()
    nccl.provide()
    nvml.provide()


def _patch_storages() -> None:
    # A CPU build of PyTorch makes and resizes storages by themselves for no device type of CUDA's; those of
    # tensors it makes by the device's own kernels. torch.load, clone() and FSDP make or resize them.
    from torch_loom import _C

    storage_type = torch.UntypedStorage
    make, resize = storage_type.__new__, storage_type.resize_

    @functools.wraps(make)
    def __new__(cls: type, *args: Any, device: Any = None, **kwargs: Any) -> Any:  # noqa: N807
        if device is None or torch.device(device).type != NAME:
            return make(cls, *args, **({} if device is None else {"device": device}), **kwargs)
        data = args[0] if args else kwargs.get("size", 0)
        if isinstance(data, int):
            return torch.empty(data, dtype=torch.uint8, device=device).untyped_storage()
        return torch.tensor(list(data), dtype=torch.uint8, device=device).untyped_storage()

    @functools.wraps(resize)
    def resize_(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        if self.device.type != NAME:
            resize(self, size)
            return self
        _C.resize_storage(self, size)
        return self

    CUDA_NAME.put(storage_type, __new__=__new__, resize_=resize_)
