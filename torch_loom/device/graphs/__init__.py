"""Graphs: work that is captured once and replayed without Python, as in ``torch.cuda.graphs``."""

from typing import Any

from torch_loom import late
from torch_loom.device.graphs.capture import (
    CUDAGraph,
    LoomGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
)

__all__ = [
    "CUDAGraph",
    "LoomGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
]

NAMES_OF_LATE = {"make_graphed_callables": late.lazily("torch_loom.device.graphs.callables")}


def __getattr__(name: str) -> Any:
    return late.attribute(NAMES_OF_LATE, name, __name__)
