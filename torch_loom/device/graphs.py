"""Graphs: work that is captured once and replayed without Python, as in ``torch.cuda.graphs``."""

from torch_loom.device._graph import (
    CUDAGraph,
    LoomGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
)
from torch_loom.device._graphed import make_graphed_callables

__all__ = [
    "CUDAGraph",
    "LoomGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]
