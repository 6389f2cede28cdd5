"""What tests of graphs start from."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import torch_loom.device as loom


def captured(body: Callable[[], object], **options: object) -> loom.LoomGraph:
    """A graph of what ``body`` does."""
    graph = loom.LoomGraph()
    with loom.graph(graph, **options):  # type: ignore[arg-type]
        body()
    return graph


def ones(*shape: int) -> Tensor:
    """A tensor of ones on the current device."""
    return torch.ones(*shape, device="loom")
