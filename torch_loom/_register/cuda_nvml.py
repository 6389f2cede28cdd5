"""NVML under CUDA's name: for this process, and for those that it starts."""

from __future__ import annotations

from torch_loom.device._core.first_use import at_first_use
from torch_loom.nvml import description


def provide() -> None:
    """Have programs that look for NVML find the package's library."""
    description.load()
    at_first_use(description.export)  # configure() may have changed what the environment says
