"""The module ``torch.loom``: the devices, shaped like ``torch.cuda``.

A name is public when the ``__all__`` of its file says so. The names with an underscore are those that PyTorch
reads.
"""
# ruff: noqa: F401, F403, F405

import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if "torch" not in _sys.modules:
    raise ImportError(
        "torch_loom.device is registered by `import torch`: import torch first, and use torch.loom"
    )

from torch_loom import late as _late
from torch_loom.config import configure
from torch_loom.cuda.names import green_contexts
from torch_loom.cuda.names import legacy_types as _legacy_types
from torch_loom.cuda.names import top_level as _top_level
from torch_loom.cuda.names.legacy_types import *
from torch_loom.cuda.names.submodules import SUBMODULES
from torch_loom.cuda.names.top_level import *
from torch_loom.device import (
    amp,
    comm,
    devices,
    graphs,
    ipc,
    memory,
    nvtx,
    profiler,
    random,
    sanitizer,
    streams,
)
from torch_loom.device._core import clock as _clock
from torch_loom.device._core import device_index as _utils
from torch_loom.device._core import first_use as _first_use
from torch_loom.device._core import topology as _topology
from torch_loom.device._core import waiting as _waiting
from torch_loom.device._core.clock import *
from torch_loom.device._core.device_index import _get_device_index
from torch_loom.device._core.first_use import *
from torch_loom.device._core.first_use import _is_in_bad_fork, _lazy_call, _lazy_init
from torch_loom.device._core.topology import *
from torch_loom.device._core.waiting import *
from torch_loom.device._core.waiting import _busy_wait_for_flag, _clear_flag, _sleep
from torch_loom.device.comm import nccl
from torch_loom.device.devices import (
    _device_count_nvml,
    _DeviceGuard,
    _exchange_device,
    _host_arch_key,
    _maybe_exchange_device,
)
from torch_loom.device.graphs import annotations as _graph_annotations
from torch_loom.device.ipc import *
from torch_loom.device.memory import pinning as _pin_memory_utils
from torch_loom.device.memory.addresses import _create_tensor_from_ptr
from torch_loom.device.random import *
from torch_loom.device.random import _get_generator, _get_rng_state_offset, _set_rng_state_offset
from torch_loom.device.streams import *
from torch_loom.device.streams import _set_stream_by_id

if _TYPE_CHECKING:
    from torch_loom.device._explain.fallback import *
    from torch_loom.device._explain.report import *
    from torch_loom.device.devices import *
    from torch_loom.device.graphs import *
    from torch_loom.device.memory import *
    from torch_loom.device.telemetry import *
else:
    # `import *` would import what they have late.
    for _module in (devices, graphs, memory):
        _early = [name for name in _module.__all__ if name not in _module.NAMES_OF_LATE]
        globals().update({name: getattr(_module, name) for name in _early})

# Most programs use none of these.
gds = _late.lazily("torch_loom.cuda.names.gds")
sparse = _late.lazily("torch_loom.cuda.names.sparse")
tunable = _late.lazily("torch_loom.cuda.names.tunable")
_gpu_trace = _late.lazily("torch_loom.cuda.names.gpu_trace")
jiterator = _late.lazily("torch_loom.device.jiterator")
plan = _late.lazily("torch_loom.device.plan")
_memory_viz = _late.lazily("torch_loom.device.memory.viz")
_sanitizer = sanitizer.cuda_names
telemetry = _late.lazily("torch_loom.device.telemetry")
_fallback = _late.lazily("torch_loom.device._explain.fallback")
_report = _late.lazily("torch_loom.device._explain.report")
NAMES_OF_LATE = {
    "DryRunPlan": plan,
    "OpTime": plan,
    "dry_run": plan,
    "Finding": _report,
    "Report": _report,
    "explain": _report,
    "Fallback": _fallback,
    "FallbackWarning": _fallback,
    "fallback_stats": _fallback,
    "reset_fallback_stats": _fallback,
    "clock_rate": telemetry,
    "device_memory_used": telemetry,
    "list_gpu_processes": telemetry,
    "memory_usage": telemetry,
    "power_draw": telemetry,
    "temperature": telemetry,
    "utilization": telemetry,
    "_compile_kernel": _late.lazily("torch_loom.device.jiterator.cuda_kernel"),
    **graphs.NAMES_OF_LATE,
    **devices.NAMES_OF_LATE,
}
_first_use.at_first_use(lambda settings: telemetry.activity.join(settings))
_first_use.at_first_use(lambda settings: _fallback.configure(settings))

__all__ = ["configure"]
__all__ += [name for name in SUBMODULES if not name.startswith("_")]
__all__ += _first_use.__all__
__all__ += _clock.__all__
__all__ += _waiting.__all__
__all__ += _topology.__all__
__all__ += devices.__all__
__all__ += graphs.__all__
__all__ += _legacy_types.__all__
__all__ += _top_level.__all__
__all__ += ipc.__all__
__all__ += memory.__all__
__all__ += [name for name in NAMES_OF_LATE if not name.startswith("_") and name not in __all__]
__all__ += random.__all__
__all__ += streams.__all__


_late_name, __dir__ = _late.names(f"torch.{_utils.DEVICE_TYPE}", globals(), NAMES_OF_LATE)


def __getattr__(name: str) -> _Any:
    # torch.utils.checkpoint reads it as a variable; without it, random numbers would not be replayed.
    return is_initialized() if name == "_initialized" else _late_name(name)
