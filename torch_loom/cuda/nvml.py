"""NVML under CUDA's name: for this process, and for those that it starts."""

from __future__ import annotations

from torch_loom import config
from torch_loom.device._core.first_use import at_first_use
from torch_loom.nvml import description


def provide() -> None:
    """Have programs that look for NVML find the package's library."""
    description.load()
    at_first_use(_describe_configured)


def _describe_configured(settings: config.Settings) -> None:
    # What configure() has said, the library does not find in the environment.
    if config.is_configured():
        description.export(settings)
