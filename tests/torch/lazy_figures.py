"""What the tests of lazy memory measure."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from torch_loom import config


def only_under_the_lazy_policy() -> None:
    """Skip the module that calls this at its top, under another policy."""
    if config.resolve().memory_policy != "lazy":
        pytest.skip("test_lazy_policy.py runs it under the lazy policy", allow_module_level=True)


@dataclass(frozen=True)
class Figures:
    """Device and host memory, unmaterialised storages, and moves; a difference when taken by ``since``."""

    allocated: int = 0
    host: int = 0
    pending: int = 0
    moved: int = 0
    moves: int = 0


def figures(device: int = 0) -> Figures:
    stats = torch.loom.memory_stats(device)
    return Figures(
        stats["allocated_bytes.all.current"],
        stats["lazy.host_bytes"],
        stats["lazy.pending_tensors"],
        stats["lazy.materialized_bytes"],
        stats["lazy.materializations"],
    )


def since(before: Figures, device: int = 0) -> Figures:
    now = figures(device)
    return Figures(*(getattr(now, name) - getattr(before, name) for name in vars(now)))


def on_device(tensor: Tensor) -> Tensor:
    """Give a tensor device memory, as any op does."""
    tensor.data_ptr()
    return tensor


def rounded(size_bytes: int) -> int:
    """What the allocator takes for a size."""
    return (size_bytes + 511) // 512 * 512
