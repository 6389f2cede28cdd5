"""What programs for torch-rbln import for its effect: the device "rbln", which torch_loom has registered.

The module's names are those of ``torch.rbln``; ``torch_rbln.device``, ``.memory`` and ``.random`` are its
modules.
"""

from __future__ import annotations

import sys

import torch

import torch_loom

_module = torch.get_device_module("rbln")

__version__: str = torch_loom.__version__
__all__ = ["device", "memory", "random"]

device = _module.devices
memory = _module.memory
random = _module.random
for _name in __all__:
    sys.modules[f"{__name__}.{_name}"] = globals()[_name]


def __getattr__(name: str) -> object:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_module, name)
