"""The module that :func:`emulate` wraps around another."""

from __future__ import annotations

from typing import Any

from torch import nn

from torch_loom.numerics.emulation.mode import Emulation
from torch_loom.numerics.emulation.paths import without_wrappers
from torch_loom.numerics.emulation.precision import Settings


class Emulated(nn.Module):
    """A module whose forward, and the backward of what it returns, have the numbers of a chip.

    Parameters and buffers are the wrapped module's own, under ``module.``; ``wrapped.module`` is that module.
    """

    def __init__(self, module: nn.Module, settings: Settings) -> None:
        super().__init__()
        self.module = module
        self.emulation = Emulation(settings, follows_modules=False)
        self._hooks: list[Any] = []
        if settings.overrides:
            for name, part in module.named_modules():
                path = without_wrappers(name)
                if path:
                    self._follow(path, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.emulation.path = ""
        with self.emulation:
            return self.module(*args, **kwargs)

    def _follow(self, path: str, part: nn.Module) -> None:
        emulation, outer = self.emulation, path.rpartition(".")[0]

        def enter(module: nn.Module, args: Any) -> None:
            emulation.path = path

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            emulation.path = outer

        self._hooks += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave)]

    def detach_hooks(self) -> nn.Module:
        """Take what was hooked into the wrapped module away, and return that module."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        return self.module
