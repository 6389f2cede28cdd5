"""The module ``torch.loom``: the devices, shaped like ``torch.cuda``.

A name is public when the ``__all__`` of its file says so. The names with an underscore are those that PyTorch
reads.
"""
# ruff: noqa: F401, F403, F405

from torch_loom.config import configure
from torch_loom.device import (
    _explain,
    _fallback,
    _gpu_trace,
    _graph_annotations,
    _init,
    _legacy_types,
    _memory_viz,
    _names,
    _pin_memory_utils,
    _sanitizer,
    _topology,
    _utils,
    _waiting,
    amp,
    comm,
    devices,
    gds,
    graphs,
    green_contexts,
    ipc,
    jiterator,
    memory,
    nccl,
    nvtx,
    profiler,
    random,
    sanitizer,
    sparse,
    streams,
    telemetry,
    tunable,
)
from torch_loom.device._cuda_kernel import _compile_kernel
from torch_loom.device._explain import *
from torch_loom.device._fallback import *
from torch_loom.device._init import *
from torch_loom.device._init import _is_in_bad_fork, _lazy_call, _lazy_init
from torch_loom.device._legacy_types import *
from torch_loom.device._names import *
from torch_loom.device._topology import *
from torch_loom.device._utils import _get_device_index
from torch_loom.device._waiting import *
from torch_loom.device._waiting import _busy_wait_for_flag, _clear_flag, _sleep
from torch_loom.device.devices import *
from torch_loom.device.devices import (
    _device_count_nvml,
    _DeviceGuard,
    _exchange_device,
    _host_arch_key,
    _maybe_exchange_device,
)
from torch_loom.device.graphs import *
from torch_loom.device.ipc import *
from torch_loom.device.memory import *
from torch_loom.device.random import *
from torch_loom.device.random import _get_generator, _get_rng_state_offset, _set_rng_state_offset
from torch_loom.device.streams import *
from torch_loom.device.streams import _set_stream_by_id
from torch_loom.device.telemetry import *

# What `import torch.loom.<name>` finds, and `torch.loom.<name>` after `import torch`.
SUBMODULES = (
    "amp",
    "comm",
    "devices",
    "gds",
    "graphs",
    "green_contexts",
    "jiterator",
    "memory",
    "nccl",
    "nvtx",
    "profiler",
    "random",
    "sanitizer",
    "sparse",
    "streams",
    "telemetry",
    "tunable",
    "_graph_annotations",
    "_gpu_trace",
    "_memory_viz",
    "_pin_memory_utils",
    "_sanitizer",
    "_utils",
)

__all__ = ["configure"]
__all__ += [name for name in SUBMODULES if not name.startswith("_")]
__all__ += _init.__all__
__all__ += _waiting.__all__
__all__ += _topology.__all__
__all__ += devices.__all__
__all__ += _explain.__all__
__all__ += _fallback.__all__
__all__ += graphs.__all__
__all__ += _legacy_types.__all__
__all__ += _names.__all__
__all__ += ipc.__all__
__all__ += memory.__all__
__all__ += random.__all__
__all__ += streams.__all__
__all__ += telemetry.__all__


def __getattr__(name: str) -> bool:
    # torch.utils.checkpoint reads it as a variable; without it, random numbers would not be replayed.
    if name == "_initialized":
        return is_initialized()
    raise AttributeError(f"module 'torch.{_utils.DEVICE_TYPE}' has no attribute {name!r}")
