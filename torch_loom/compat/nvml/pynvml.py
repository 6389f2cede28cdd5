"""``pynvml`` where nvidia-ml-py is not installed: the functions that libraries call."""

from __future__ import annotations

from typing import NoReturn

from torch_loom.errors import NotApplicableError
from torch_loom.nvml.client import *  # noqa: F403

__version__ = "torch-loom"


def __getattr__(name: str) -> NoReturn:
    if name.startswith("nvml"):
        raise NotApplicableError(
            f"torch-loom's pynvml has no {name}; nvidia-ml-py has: `pip install nvidia-ml-py`"
        )
    raise AttributeError(f"module 'pynvml' has no attribute {name!r}")
