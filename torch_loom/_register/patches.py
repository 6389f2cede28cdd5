"""All changes to PyTorch where it has no extension point, and the entries where it has a registry.

Each stands with its reason and the upstream issue, to be removed when that is closed.
"""

from __future__ import annotations

import atexit
import functools
import operator
import re
import sys
import warnings
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils.dlpack import DLDeviceType

from torch_loom._register import split_groups

# The names under which checkpoints of these devices are written: the default and the vendor's.
_KNOWN_NAMES = ("loom", "rbln")

# Before PyTorch's own entry for this device (23) and unlike any other: equal priorities cannot be sorted.
_PACKAGE_PRIORITY = 19


def apply(device_type: str) -> None:
    """Apply all of them, for the device type with this name."""
    _patch_dlpack_device(device_type)
    _register_checkpoint_names(device_type)
    _patch_profiler_exit()
    _end_profile_at_exit()
    _name_profiled_times(device_type)
    _provide_communication()
    _patch_default_tensor_type(device_type)
    _patch_is_shared(device_type)
    _register_reductions()
    _check_captured_steps(device_type)
    _wait_before_other_default_dtype()
    split_groups.provide()


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


_PROFILED = (
    "device_time",
    "device_time_total",
    "self_device_time_total",
    "device_memory_usage",
    "self_device_memory_usage",
)


def _name_profiled_times(device_type: str) -> None:
    # What a program sorts by as "cuda_time_total" is kept as "device_time_total"; PyTorch translates the
    # names of its own devices only. No upstream issue.
    from torch.autograd.profiler_util import FunctionEvent, FunctionEventAvg

    for figure in _PROFILED:
        for kind in (FunctionEvent, FunctionEventAvg):
            setattr(kind, figure.replace("device", device_type), property(operator.attrgetter(figure)))


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


def _patch_profiler_exit() -> None:
    # profile.__exit__ synchronises the device before it ends the profile. Where that raises what had failed
    # on a stream, the profiler would stay on in this thread: its memory grows, and no other can be started.
    # Not reported upstream yet; CUDA's own profile has the same fault.
    profile: Any = torch.autograd.profiler.profile
    original = profile.__exit__

    def __exit__(self: Any, exc_type: Any, exc_val: Any, exc_tb: Any) -> Any:  # noqa: N807
        try:
            return original(self, exc_type, exc_val, exc_tb)
        except Exception:
            # The failure is raised once, so that this time the profile ends.
            if torch._C._autograd._profiler_enabled():
                original(self, exc_type, exc_val, exc_tb)
            raise

    profile.__exit__ = __exit__


def _end_profile_at_exit() -> None:
    # A profile that is still running when the interpreter ends makes PyTorch crash, whatever the device.
    # Not reported upstream yet.
    def end_profile() -> None:
        if torch._C._autograd._profiler_enabled():
            torch._C._autograd._disable_profiler()

    atexit.register(end_profile)


def _provide_communication() -> None:
    # torch.nn.parallel (DataParallel, replicate, scatter, gather) calls seven functions of torch._C that only
    # CUDA builds have, and asks torch.cuda.nccl, which knows CUDA tensors alone; parallel_apply reads devices
    # with torch.cuda's function, which refuses any other. pytorch/pytorch #162152, intel/torch-xpu-ops #2228.
    if hasattr(torch._C, "_broadcast_coalesced"):
        return  # a CUDA build: these devices have no DataParallel there
    from torch_loom.device import comm
    from torch_loom.device._core import device_index
    from torch_loom.device.comm import nccl

    def gather_(tensors: Any, dim: int, destination: int) -> Any:
        return comm.gather(tensors, dim, "cpu" if destination == -1 else destination)

    functions = {
        "_broadcast": comm.broadcast,
        "_broadcast_out": lambda tensor, out: comm.broadcast(tensor, out=out),
        "_broadcast_coalesced": comm.broadcast_coalesced,
        "_scatter": comm.scatter,
        "_scatter_out": lambda tensor, out, dim, streams: comm.scatter(
            tensor, dim=dim, streams=streams, out=out
        ),
        "_gather": gather_,
        "_gather_out": lambda tensors, out, dim: comm.gather(tensors, dim, out=out),
    }
    for name, function in functions.items():
        setattr(torch._C, name, function)
    sys.modules["torch.nn.parallel.comm"].nccl = nccl  # type: ignore[attr-defined]
    # By its module's name: torch.nn.parallel.parallel_apply is the function.
    module = sys.modules["torch.nn.parallel.parallel_apply"]
    module._get_device_index = device_index._get_device_index  # type: ignore[attr-defined]


def _check_captured_steps(device_type: str) -> None:
    # An optimizer that is captured without capturable=True replays one step's numbers for ever. PyTorch says
    # so under CUDA and XPU only. No upstream issue.
    optimizer: Any = torch.optim.Optimizer
    original = optimizer._accelerator_graph_capture_health_check

    def check(self: Any) -> None:
        original(self)
        module = getattr(torch, device_type)
        if torch.compiler.is_compiling() or not module.is_initialized():
            return
        # Adafactor has no such option.
        is_capturable = all(group.get("capturable", False) for group in self.param_groups)
        if not is_capturable and module.is_current_stream_capturing():
            raise RuntimeError(
                f"Attempting {device_type.upper()} graph capture of step() for an instance of "
                f"{type(self).__name__} but param_groups' capturable is False."
            )

    optimizer._accelerator_graph_capture_health_check = check


def end_cuda_sanitizer(device_type: str) -> None:
    """End what TORCH_CUDA_SANITIZER began, before this package's takes the place of ``torch.cuda``'s."""
    # TORCH_CUDA_SANITIZER makes the import of torch watch torch.cuda, without which each op then fails. Ours
    # reads the same variable.
    if torch.version.cuda is not None and device_type != "cuda":
        return
    theirs = sys.modules.get("torch.cuda._sanitizer")
    if theirs is not None and theirs.cuda_sanitizer.enabled:
        theirs.cuda_sanitizer.disable()


_DEPRECATED_TENSOR_TYPE = (
    "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() "
    "and torch.set_default_device() as alternatives."
)


def _patch_default_tensor_type(device_type: str) -> None:
    # torch._C knows the tensor types of the CPU and CUDA only, and refuses any other: what the type says is
    # set by the two functions that have replaced it. No upstream issue: the function is deprecated.
    from torch_loom.cuda.names.legacy_types import TensorType

    original = torch.set_default_tensor_type
    is_ours = False

    @functools.wraps(original)
    def set_default_tensor_type(t: Any, /) -> None:
        nonlocal is_ours
        kind = t
        if isinstance(t, str) and t.startswith(f"torch.{device_type}."):
            kind = getattr(getattr(torch, device_type), t.rpartition(".")[2], t)
        if isinstance(kind, TensorType):
            warnings.warn(_DEPRECATED_TENSOR_TYPE, stacklevel=2)
            torch.set_default_dtype(kind.dtype)  # refuses integers
            torch.set_default_device(device_type)
            is_ours = True
            return
        original(t)
        if is_ours:
            torch.set_default_device(None)
            is_ours = False

    torch.set_default_tensor_type = set_default_tensor_type


def _wait_before_other_default_dtype() -> None:
    # The default dtype, in which integers are divided, is the process's: the engine's kernels ask for it when
    # they run, which may be after the program has set another. A GPU's kernel was chosen when the op was
    # issued.
    from torch_loom import _C

    for name in ("_set_default_dtype", "_set_default_tensor_type"):
        original = getattr(torch._C, name)

        def waiting(kind: Any, /, original: Any = original) -> None:
            # A dtype, or a tensor type, which has one.
            if getattr(kind, "dtype", kind) is not torch.get_default_dtype():
                _C.drain()
            original(kind)

        setattr(torch._C, name, functools.wraps(original)(waiting))
