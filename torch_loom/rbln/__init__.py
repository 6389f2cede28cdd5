"""The module ``torch.rbln``: ``torch.loom``, and what holds under the vendor's name alone.

That is the interface of torch-rbln 0.12. Where it gives a name of ours another meaning (``explain``,
``memory_summary``, events without times), ours is found in ``torch.loom``, which is there as well.
"""
# ruff: noqa: F403

from __future__ import annotations

from typing import Any

from torch_loom import device as _device
from torch_loom.device import *
from torch_loom.rbln import devices, memory, streams
from torch_loom.rbln import programs as _programs
from torch_loom.rbln import regions as _regions
from torch_loom.rbln.devices import *
from torch_loom.rbln.memory import *
from torch_loom.rbln.programs import *
from torch_loom.rbln.regions import *
from torch_loom.rbln.streams import *

__all__ = list(
    dict.fromkeys(
        [
            *_device.__all__,
            *devices.__all__,
            *memory.__all__,
            *_programs.__all__,
            *_regions.__all__,
            *streams.__all__,
        ]
    )
)


def __getattr__(name: str) -> Any:
    return getattr(_device, name)
