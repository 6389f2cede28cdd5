"""NVML for programs that ask it through ``pynvml``: ``import torch_loom.compat.nvml`` makes that import work.

Only where there is no ``pynvml`` installed; a real one goes on asking the driver of the machine's GPUs.
"""

from __future__ import annotations

import importlib.util
import sys

__all__ = ["install"]


def install() -> None:
    """Let ``import pynvml`` find :mod:`torch_loom.compat.nvml.pynvml`, unless there is another."""
    if "pynvml" in sys.modules or importlib.util.find_spec("pynvml") is not None:
        return
    from torch_loom.compat.nvml import pynvml

    sys.modules["pynvml"] = pynvml


install()
