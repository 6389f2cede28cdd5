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
        self._paths: dict[nn.Module, str] = {}
        self._running: list[nn.Module] = []
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
            self._paths = {part: path for path, part in module.named_modules()}
        self._running.append(module)
        self._changed(self._paths.get(module, ""))

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._running:
            self._running.pop()
        self._changed(self._paths.get(self._running[-1], "") if self._running else "")
