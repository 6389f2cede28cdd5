"""The modules of ``torch.cuda`` that ``torch.loom`` has."""

from __future__ import annotations

from collections.abc import Mapping

_OF_DEVICES = (
    *("amp", "comm", "devices", "graphs", "jiterator", "memory", "nvtx", "profiler", "random", "sanitizer"),
    *("streams", "telemetry"),
)
_OF_NAMES = ("gds", "green_contexts", "sparse", "tunable")

SUBMODULES: Mapping[str, str] = {
    **{name: f"torch_loom.device.{name}" for name in _OF_DEVICES},
    **{name: f"torch_loom.cuda.names.{name}" for name in _OF_NAMES},
    "nccl": "torch_loom.device.comm.nccl",
    "_graph_annotations": "torch_loom.device.graphs.annotations",
    "_gpu_trace": "torch_loom.cuda.names.gpu_trace",
    "_memory_viz": "torch_loom.device.memory.viz",
    "_pin_memory_utils": "torch_loom.device.memory.pinning",
    "_sanitizer": "torch_loom.device.sanitizer.cuda_names",
    "_utils": "torch_loom.device._core.device_index",
}
"""What ``import torch.loom.<name>`` finds, and ``torch.loom.<name>``: where each stands."""
