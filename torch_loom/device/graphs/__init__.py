"""Graphs: work that is captured once and replayed without Python, as in ``torch.cuda.graphs``."""

from typing import TYPE_CHECKING

from torch_loom import late
from torch_loom.device.graphs.capture import (
    CUDAGraph,
    LoomGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
)

if TYPE_CHECKING:
    from torch_loom.device.graphs.callables import make_graphed_callables

__all__ = [
    "CUDAGraph",
    "LoomGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]

NAMES_OF_LATE = {"make_graphed_callables": late.lazily("torch_loom.device.graphs.callables")}

__getattr__, __dir__ = late.names(__name__, globals(), NAMES_OF_LATE)
