"""Patches of PyTorch's eager mode."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils.dlpack import DLDeviceType

from torch_loom.patches.declared import Place, patch

# Figures of a profiled event, as "device_time" under the device's name.
_PROFILED = (
    "{device}_time",
    "{device}_time_total",
    "self_{device}_time_total",
    "{device}_memory_usage",
    "self_{device}_memory_usage",
)
# Functions of torch._C that torch.nn.parallel calls.
_COMMUNICATION = (
    *("_broadcast", "_broadcast_out", "_broadcast_coalesced"),
    *("_scatter", "_scatter_out", "_gather", "_gather_out"),
)
_DEPRECATED_TENSOR_TYPE = (
    "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() "
    "and torch.set_default_device() as alternatives."
)


@patch(
    "torch:Tensor.__dlpack_device__",
    issue="pytorch/pytorch#195815",
    until="the first with pull request 195815",
)
def name_in_dlpack(place: Place) -> Any:
    """It compares the device's type with the literal "privateuse1", which no renamed backend has, so that
    `torch.from_dlpack` and other consumers raise "Unknown device type".
    """
    original = place.original

    def __dlpack_device__(self: torch.Tensor) -> Any:  # noqa: N807
        if has_torch_function((self,)):
            return handle_torch_function(torch.Tensor.__dlpack_device__, (self,), self)
        if self.device.type != place.device:
            return original(self)
        return DLDeviceType.kDLExtDev, self.device.index or 0

    __dlpack_device__.__doc__ = original.__doc__
    return __dlpack_device__


@patch(
    *(
        f"torch.autograd.profiler_util:{kind}.{figure}"
        for kind in ("FunctionEvent", "FunctionEventAvg")
        for figure in _PROFILED
    )
)
def profiled_figures(place: Place) -> Any:
    """What a program sorts by as `cuda_time_total` is kept as `device_time_total`; PyTorch translates the
    names of its own devices only.
    """
    return property(operator.attrgetter(place.name.replace(place.device, "device")))


@patch("torch:UntypedStorage.is_shared")
def shared_storages(place: Place) -> Any:
    """The C++ method knows of shared CPU memory and of CUDA's, and says False of other devices' memory, which
    can be shared as it is.
    """
    original = place.original

    def is_shared(self: torch.UntypedStorage) -> bool:
        return self.device.type == place.device or original(self)

    is_shared.__doc__ = original.__doc__
    return is_shared


@patch("torch.autograd.profiler:profile.__exit__")
def profile_ends(place: Place) -> Any:
    """It synchronises the device before it ends the profile. Where that raises what had failed on a stream,
    the profiler would stay on in this thread: its memory grows, and no other can be started. CUDA's own
    profile has the same fault.
    """
    original = place.original

    def __exit__(self: Any, exc_type: Any, exc_val: Any, exc_tb: Any) -> Any:  # noqa: N807
        try:
            return original(self, exc_type, exc_val, exc_tb)
        except Exception:
            # The failure is raised once, so that this time the profile ends.
            if torch._C._autograd._profiler_enabled():
                original(self, exc_type, exc_val, exc_tb)
            raise

    return __exit__


@patch(
    *(f"torch._C:{name}" for name in _COMMUNICATION),
    "torch.nn.parallel.comm:nccl",
    # By its module's name: torch.nn.parallel.parallel_apply is the function.
    "torch.nn.parallel.parallel_apply:_get_device_index",
    issue="pytorch/pytorch#162152, intel/torch-xpu-ops#2228",
)
def communication(place: Place, functions: Mapping[str, Any]) -> Any:
    """`torch.nn.parallel` (DataParallel, replicate, scatter, gather) calls functions of `torch._C` that only
    CUDA builds have, and asks `torch.cuda.nccl`, which knows CUDA tensors alone; `parallel_apply` reads
    devices with `torch.cuda`'s function, which refuses any other.

    Args:
        functions: what takes the place of each.
    """
    return functions[place.name]


@patch("torch.optim:Optimizer._accelerator_graph_capture_health_check")
def captured_steps(place: Place) -> Any:
    """An optimizer that is captured without `capturable=True` replays the numbers of one step for ever.
    PyTorch says so under CUDA and XPU only.
    """
    from torch_loom import _C

    original, device = place.original, place.device

    def check(self: Any) -> None:
        original(self)
        if torch.compiler.is_compiling() or not _C.is_initialized():
            return
        # Adafactor has no such option.
        is_capturable = all(group.get("capturable", False) for group in self.param_groups)
        if not is_capturable and _C.is_current_stream_capturing():
            raise RuntimeError(
                f"Attempting {device.upper()} graph capture of step() for an instance of "
                f"{type(self).__name__} but param_groups' capturable is False."
            )

    return check


@patch("torch:set_default_tensor_type", until="never: the function is deprecated")
def default_tensor_type(place: Place, is_own: Callable[[Any], bool]) -> Any:
    """`torch._C` knows the tensor types of the CPU and CUDA only, and refuses any other: what the type says
    is set by the two functions that have replaced it.

    Args:
        is_own: says whether a type is one of ours.
    """
    original, device = place.original, place.device
    is_ours = False

    @functools.wraps(original)
    def set_default_tensor_type(t: Any, /) -> None:
        nonlocal is_ours
        kind = t
        if isinstance(t, str) and t.startswith(f"torch.{device}."):
            kind = getattr(getattr(torch, device), t.rpartition(".")[2], t)
        if is_own(kind):
            warnings.warn(_DEPRECATED_TENSOR_TYPE, stacklevel=2)
            torch.set_default_dtype(kind.dtype)  # refuses integers
            torch.set_default_device(device)
            is_ours = True
            return
        original(t)
        if is_ours:
            torch.set_default_device(None)
            is_ours = False

    return set_default_tensor_type


@patch("torch:_C._set_default_dtype", "torch:_C._set_default_tensor_type")
def other_default_dtypes(place: Place) -> Any:
    """The default dtype, in which integers are divided, is the process's: the engine's kernels ask for it
    when they run, which may be after the program has set another. The kernel of a GPU was chosen when the op
    was issued.
    """
    from torch_loom import _C

    original = place.original

    @functools.wraps(original)
    def waiting(kind: Any, /) -> None:
        # A dtype, or a tensor type, which has one.
        if getattr(kind, "dtype", kind) is not torch.get_default_dtype():
            _C.drain()
        original(kind)

    return waiting
