"""What programs for torch-rbln import for its effect: the device "rbln", which torch_loom has registered.

The package's names are those of ``torch.rbln``, which is ``torch_rbln.device``; ``.memory``, ``.programs``,
``.profiler`` and ``.random`` have the vendor's in their files.
"""

from __future__ import annotations

import sys

from torch_loom import config
from torch_loom.config import settings

# Of the vendor's package whose names these are: programs ask for it.
__version__ = "0.12.0"
__all__ = ["device", "memory", "profiler", "programs", "random"]


def _find_modules() -> None:
    import torch

    from torch_loom.rbln import memory, programs, regions, streams

    from . import context_holder

    module = torch.get_device_module(config.rbln.NAME)
    module.context_holder = context_holder
    modules = {"device": module, "memory": memory, "random": module.random}
    modules |= {"programs": programs, "profiler": regions}
    globals().update(modules)
    # The files that the vendor's module is made of.
    modules |= {f"device.{name}": module for name in ("device", "device_tensor_utils")}
    modules |= {"device.streams": streams, "device.context_holder": context_holder}
    sys.modules.update({f"{__name__}.{name}": found for name, found in modules.items()})


def __getattr__(name: str) -> object:
    module = globals().get("device")  # none while this file runs, and in diagnostics
    if module is None or name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)


if not config.value(settings.RBLN_DIAGNOSE):
    _find_modules()
