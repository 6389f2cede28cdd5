"""What happens later than `import torch`: registering with modules of PyTorch, and importing some of ours.

Dynamo and Inductor take seconds to import, and have no entry point that a backend is asked through: their
registries are filled by calls. So a finder waits for the import of each. pytorch/pytorch #189138.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    _insert_finder()
    _waiting.setdefault(name, []).append(callback)


def forget() -> None:
    """Call back after no import any more: what was to be called has nothing to work with."""
    _waiting.clear()
    _unfinished.clear()


def _insert_finder() -> None:
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


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
        if fullname not in _waiting and fullname not in _late:
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
        return _late.get(self._name) or self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if _late.pop(self._name, None) is module:
            module.__class__ = ModuleType
        # Restore the loader, for code that asks the module for its source.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        # Not as an attribute: a module of PyTorch's settings takes none but those.
        vars(module)["__loader__"] = self._loader
        for callback in _waiting.pop(self._name, ()):
            callback()


# What the import system, and code that looks through all modules for a file, reads and writes of any.
_KNOWN_BEFORE = frozenset(
    {"__cached__", "__class__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__"}
)

_late: dict[str, ModuleType] = {}


class _Late(ModuleType):
    """A module that is imported when something of it is read, or of its package.

    Python's own import does it, so that other threads wait as for any. The module is not in ``sys.modules``
    before.
    """

    def __getattribute__(self, name: str) -> Any:
        # Not by super(): the class changes at the end.
        read = ModuleType.__getattribute__
        # Without a path Python would look for what is below it in no folder.
        is_known = read(self, "__spec__") is not None
        if name not in _KNOWN_BEFORE or (name == "__path__" and not is_known):
            return read(importlib.import_module(read(self, "__name__")), name)
        if name == "__spec__" and not is_known:
            return importlib.util.find_spec(read(self, "__name__"))
        return read(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Another finder, of the program's, may make a module of its own.
        known = name in _KNOWN_BEFORE
        module = self if known else importlib.import_module(ModuleType.__getattribute__(self, "__name__"))
        ModuleType.__setattr__(module, name, value)


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
    """
    if (imported := sys.modules.get(name)) is not None:
        return imported
    _insert_finder()
    module = _late.setdefault(name, _Late(name))
    package, _, last = name.rpartition(".")
    if (parent := sys.modules.get(package)) is not None:
        setattr(parent, last, module)
    return module


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage in the body, which makes what lives as long as the process.

    A collection amid it would walk all of PyTorch for nothing, which takes longer than the rest.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
