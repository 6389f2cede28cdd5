"""``import torch_loom.compat.pybuda`` makes ``import pybuda`` and its sub-modules find torch_loom.pybuda."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["install"]

_NAME, _OURS = "pybuda", "torch_loom.pybuda"


class _Alias:
    """Finds ``pybuda`` and what is below it: the very modules of torch_loom.pybuda."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _NAME and not fullname.startswith(f"{_NAME}."):
            return None
        ours = _OURS + fullname[len(_NAME) :]
        try:
            module = importlib.import_module(ours)
        except ModuleNotFoundError as error:
            if error.name is not None and ours.startswith(error.name):
                return None
            raise
        # The import system would load it anew: the module is registered under both names instead.
        return ModuleSpec(fullname, _Loader(module), is_package=hasattr(module, "__path__"))


class _Loader(Loader):
    """Hands out a module that exists, and leaves its own names alone."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has written the other name into it.
        module.__spec__ = self._spec


def install() -> None:
    """Let ``import pybuda`` find torch_loom.pybuda from now on."""
    if _Alias not in sys.meta_path:
        # In front: the finder of files would load the sub-modules a second time, from the package's folder.
        sys.meta_path.insert(0, _Alias)


install()
