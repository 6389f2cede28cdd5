"""The devices as CUDA's: ``torch.cuda`` answers with our functions where we have them.

Modules that ``import torch`` has loaded hold ``torch.cuda`` and its submodules already. So their contents are
replaced and they stay the same objects; names that we do not have keep PyTorch's own.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch

NAME = "cuda"

# A module's own, and what is the same in every module.
_KEPT = frozenset({"__name__", "__file__", "__path__", "__spec__", "__loader__", "__package__", "__cached__"})


def take_over(module: ModuleType) -> None:
    """Put the device module in the place of ``torch.cuda``."""
    loaded = {name: sys.modules.get(f"{torch.cuda.__name__}.{name}") for name in module.SUBMODULES}
    _overlay(torch.cuda, module)
    for submodule, theirs in loaded.items():
        ours = getattr(module, submodule)
        if theirs is None or submodule.startswith("_"):
            # Nobody has it yet, or it is one piece of which no name makes sense without the others.
            sys.modules[f"{torch.cuda.__name__}.{submodule}"] = ours
        else:
            _overlay(theirs, ours)
            setattr(torch.cuda, submodule, theirs)


def _overlay(theirs: ModuleType, ours: ModuleType) -> None:
    names: dict[str, Any] = {name: value for name, value in vars(ours).items() if name not in _KEPT}
    if "__all__" in names:
        names["__all__"] = [*dict.fromkeys([*getattr(theirs, "__all__", ()), *names["__all__"]])]
    vars(theirs).update(names)
