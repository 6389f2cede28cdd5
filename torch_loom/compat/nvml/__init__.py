"""NVML for programs that ask it through ``pynvml``: ``import torch_loom.compat.nvml`` makes that import work.

Under the name cuda an installed nvidia-ml-py finds the devices by itself (:mod:`torch_loom.nvml`). This is
for the other device names, and for where none is installed.
"""

from __future__ import annotations

import importlib.util
import sys

from torch_loom.nvml import description

__all__ = ["install"]


def install() -> None:
    """Let ``import pynvml`` work, and find the devices, under every device name."""
    description.load()
    if "pynvml" in sys.modules or importlib.util.find_spec("pynvml") is not None:
        return
    from torch_loom.compat.nvml import pynvml

    sys.modules["pynvml"] = pynvml


install()
