"""Paths of the modules that run in a context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class ModulePaths:
    """Paths of running modules in a context, where the outermost module that is called is the root."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        # By id, since torch.compile traces the hooks and keeps no modules that they put into containers.
        self._paths: dict[int, str] = {}
        self._running: list[str] = []
        self._hooks: list[Any] = []

    def watch(self) -> None:
        self._hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def unwatch(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._running, self._paths = [], [], {}

    def _enter(self, module: nn.Module, args: Any) -> None:
        if not self._running:
            self._paths = {id(part): without_wrappers(path) for path, part in module.named_modules()}
        path = self._paths.get(id(module), "")
        self._running.append(path)
        self._changed(path)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._running:
            self._running.pop()
        self._changed(self._running[-1] if self._running else "")


def without_wrappers(path: str) -> str:
    """Without the modules that torch.compile puts around others."""
    return ".".join([name for name in path.split(".") if name != "_orig_mod"])
