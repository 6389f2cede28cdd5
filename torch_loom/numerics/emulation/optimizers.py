"""Whether an optimizer's step runs: its arithmetic, on the float32 parameters, is no op of the chip's."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


class OptimizerSteps(threading.local):
    """Follows the steps of all optimizers that this thread makes while it watches."""

    def __init__(self) -> None:
        self._hooks: list[Any] = []
        self._step: FrameType | None = None

    def watch(self) -> None:
        thread = threading.get_ident()

        # The hooks are the process's: those of another thread's steps mean nothing here.
        def began(*_: Any) -> None:
            if threading.get_ident() == thread:
                self._step = sys._getframe(1)

        def ended(*_: Any) -> None:
            if threading.get_ident() == thread:
                self._step = None

        self._hooks = [register_optimizer_step_pre_hook(began), register_optimizer_step_post_hook(ended)]

    def unwatch(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._step = [], None

    def is_stepping(self) -> bool:
        """Whether the caller is part of a step."""
        if self._step is None:
            return False
        # A step that raised has told no end: it runs only while its frame does.
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame is self._step:
                return True
            frame = frame.f_back
        self._step = None
        return False
