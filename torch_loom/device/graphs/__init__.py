"""Graphs: work that is captured once and replayed without Python, as in ``torch.cuda.graphs``."""

from torch_loom.device.graphs.callables import make_graphed_callables
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
    "make_graphed_callables",
]
