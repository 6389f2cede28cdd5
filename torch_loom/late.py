"""What happens later than `import torch`: registering with modules of PyTorch, and importing some of ours.

Dynamo and Inductor take seconds to import, and have no entry point that a backend is asked through: their
registries are filled by calls. So a finder waits for the import of each. pytorch/pytorch #189138.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

_waiting: dict[str, list[Callable[[], None]]] = {}
_unfinished: dict[str, list[Callable[[], None]]] = {}


def after_import(name: str, callback: Callable[[], None]) -> None:
    """Call it once, when the module has been imported; now if it has been."""
    module = sys.modules.get(name)
    if module is not None and getattr(module.__spec__, "_initializing", False):
        # Its import imported torch: it has to end first, and no finder sees that.
        _unfinished.setdefault(name, []).append(callback)
        module.__class__ = _Unfinished
        return
    if name in sys.modules:
        callback()
        return
    if not _waiting:
        sys.meta_path.insert(0, _Finder())
    _waiting.setdefault(name, []).append(callback)


class _Unfinished(ModuleType):
    """A module whose import is under way: calls back before anything of the finished module is read."""

    def __getattribute__(self, name: str) -> Any:
        read = super().__getattribute__
        if not getattr(read("__spec__"), "_initializing", False):
            self.__class__ = ModuleType  # type: ignore[assignment]
            for callback in _unfinished.pop(read("__name__"), ()):
                callback()
        return read(name)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the other finders find, with a loader that calls back."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _waiting:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if find is None or isinstance(finder, _Finder):
                continue
            spec: importlib.machinery.ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, fullname)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, name: str) -> None:
        self._loader = loader
        self._name = name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        # Restore the loader, for code that asks the module for its source.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        # Not as an attribute: a module of PyTorch's settings takes none but those.
        vars(module)["__loader__"] = self._loader
        for callback in _waiting.pop(self._name, ()):
            callback()


# What the import system, and whoever looks through all modules for a file, reads of any.
_KNOWN_BEFORE = frozenset(
    {"__class__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__"}
)

# One for all: what is imported late may read another late module.
_lock = threading.RLock()
_loading: dict[ModuleType, int] = {}  # by which thread


def _after_fork_in_child() -> None:
    # Another thread's import does not go on here, and its lock is never released.
    global _lock
    _lock = threading.RLock()
    for module, thread in list(_loading.items()):
        if thread != threading.get_ident():
            del _loading[module]
            module.__class__ = _Late


os.register_at_fork(after_in_child=_after_fork_in_child)


class _Late(ModuleType):
    """A module that is imported when something of it is read."""

    def __getattribute__(self, name: str) -> Any:
        # Not by super(): the class may change meanwhile.
        read = ModuleType.__getattribute__
        if name in _KNOWN_BEFORE:
            return read(self, name)
        with _lock:
            if type(self) is _Late:
                self.__class__ = _Loading  # type: ignore[assignment]
                _loading[self] = threading.get_ident()
                try:
                    read(self, "__spec__").loader.exec_module(self)
                except BaseException:
                    self.__class__ = _Late
                    raise
                finally:
                    _loading.pop(self, None)
                self.__class__ = ModuleType  # type: ignore[assignment]
        return getattr(self, name)


class _Loading(ModuleType):
    """A late module amid its import: whoever reads it in another thread waits for the end."""

    def __getattribute__(self, name: str) -> Any:
        with _lock:
            return ModuleType.__getattribute__(self, name)


def names(
    module: str, own: Mapping[str, Any], lenders: Mapping[str, Any]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a module that has names of modules that are imported late.

    Args:
        module: its name, for errors.
        own: its names, as ``globals()`` has them.
        lenders: of each such name, the late module.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in lenders:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(lenders[name], name)

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*own, *lenders})

    return __getattr__, __dir__


def lazily(name: str) -> Any:
    """Return a module that is imported when something of it is first read.

    For what most programs never use: it then adds nothing to `import torch`.

    Args:
        name: of a module whose package has been imported.
    """
    if (imported := sys.modules.get(name)) is not None:
        return imported
    spec = importlib.util.find_spec(name)
    assert spec is not None, name
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _Late
    sys.modules[name] = module
    package, _, last = name.rpartition(".")
    if package:
        setattr(sys.modules[package], last, module)
    return module
