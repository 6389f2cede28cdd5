"""Where each thread is in the program: the modules whose forwards run, and the emulation that counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

if TYPE_CHECKING:
    from torch_loom.numerics.emulation.mode import Emulation


class Flag:
    """Whether a function is being computed under an emulation: the others let it pass."""

    is_set = False


class _Thread(threading.local):
    """What runs in a thread."""

    # An object of its own, here and below: torch.compile loses what is assigned to a threading.local.
    def __init__(self) -> None:
        self.emulating = Flag()


thread = _Thread()


class Place:
    """Where a thread is in one emulation."""

    def __init__(self) -> None:
        self.paths: list[str] = []  # of the modules whose forwards run, the outermost first
        self.names: dict[int, tuple[str, ...]] = {}  # paths of the root's modules, by id
        self.outer: list[tuple[bool, list[str]]] = []  # what to return to, one for each entry

    def enter(self, names: Sequence[str]) -> None:
        """A module runs that has these paths: several where it is used in several places."""
        self.paths.append(names[0] if len(names) == 1 else _nearest(names, self.paths))

    def leave(self, names: Sequence[str]) -> None:
        """It ended. Nothing happens where a hook of the program's failed before it was entered."""
        if self.paths and self.paths[-1] in names:
            self.paths.pop()


class Places:
    """Where the program is in one emulation."""

    def __init__(self) -> None:
        self.here = Place()


class PlacesOfThreads(Places, threading.local):
    """The same, for each thread its own: several may run one emulated module at a time."""


def _nearest(names: Sequence[str], running: Sequence[str]) -> str:
    """Return the path of a module that lies in the running module."""
    for outer in reversed(running):
        for name in names:
            if not outer or name.startswith(outer + "."):
                return name
    return names[0]


def paths_of(root: nn.Module) -> dict[int, tuple[str, ...]]:
    """Return all paths of each module under `root`, by the module's id; the root's own is empty."""
    # By id, since torch.compile traces this and keeps no modules in containers.
    found: dict[int, tuple[str, ...]] = {}
    for path, part in root.named_modules(remove_duplicate=False):
        name = without_wrappers(path)
        known = found.get(id(part), ())
        if name not in known:
            found[id(part)] = (*known, name)
    return found


def without_wrappers(path: str) -> str:
    """Without the modules that torch.compile puts around others."""
    return ".".join([name for name in path.split(".") if name != "_orig_mod"])


class ModulePaths:
    """Follows the modules that run in a context, where the outermost module that is called is the root."""

    def __init__(self, places: Places, called: Callable[[Sequence[str]], None]) -> None:
        self._places, self._called = places, called
        self._lock = threading.Lock()
        self._num_threads = 0
        self._hooks: list[Any] = []

    def watch(self) -> None:
        with self._lock:
            self._num_threads += 1
            if self._num_threads == 1:
                self._hooks = [
                    register_module_forward_pre_hook(self._enter),
                    register_module_forward_hook(self._leave, always_call=True),
                ]

    def unwatch(self) -> None:
        with self._lock:
            self._num_threads -= 1
            if self._num_threads == 0:
                self._remove()

    def end(self) -> None:
        """The context is gone. Code that torch.compile traces leaves without unwatch()."""
        with self._lock:
            self._remove()

    def _remove(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _enter(self, module: nn.Module, args: Any) -> None:
        place = self._places.here
        if not place.outer:
            return  # the hooks are the process's: this thread is in no such context
        if not place.paths:
            place.names = paths_of(module)
            if not torch.compiler.is_compiling():
                self._called([path for paths in place.names.values() for path in paths])
        place.enter(place.names.get(id(module), ("",)))

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        place = self._places.here
        if place.outer:
            place.leave(place.names.get(id(module), ("",)))


class Entered:
    """A hook of a part of an emulated module. An object, so that copies of the module have their own."""

    def __init__(self, emulation: Emulation, names: Sequence[str]) -> None:
        self.emulation, self.names = emulation, names

    def __call__(self, module: nn.Module, args: Any) -> None:
        self.emulation.places.here.enter(self.names)


class Left(Entered):
    """The hook that ends what :class:`Entered` began."""

    def __call__(self, module: nn.Module, args: Any, output: Any = None) -> None:
        self.emulation.places.here.leave(self.names)
