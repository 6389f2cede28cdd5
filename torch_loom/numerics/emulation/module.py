"""The module that :func:`emulate` wraps around another."""

from __future__ import annotations

from typing import Any

from torch import nn

from torch_loom.numerics.emulation.mode import Emulation
from torch_loom.numerics.emulation.paths import Entered, Left, paths_of
from torch_loom.numerics.emulation.patterns import check_known
from torch_loom.numerics.emulation.precision import Settings


class Emulated(nn.Module):
    """A module whose forward, and the backward of what it returns, have the numbers of a chip.

    Parameters and buffers are the wrapped module's own, under ``module.``; ``wrapped.module`` is that module.
    Copies and pickles are emulated as the original is; threads may run one wrapped module at a time.
    """

    def __init__(self, module: nn.Module, settings: Settings) -> None:
        super().__init__()
        names = paths_of(module)
        check_known(settings.overrides, [path for paths in names.values() for path in paths])
        self.module = module
        self.emulation = Emulation(settings, follows_modules=False)
        self._hooks: list[Any] = []
        if settings.overrides:
            for part in module.modules():
                if part is not module:
                    self._follow(part, names[id(part)])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self.emulation:
            return self.module(*args, **kwargs)

    def _follow(self, part: nn.Module, names: tuple[str, ...]) -> None:
        self._hooks += [
            part.register_forward_pre_hook(Entered(self.emulation, names)),
            part.register_forward_hook(Left(self.emulation, names), always_call=True),
        ]

    def detach_hooks(self) -> nn.Module:
        """Take what was hooked into the wrapped module away, and return that module."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        return self.module
