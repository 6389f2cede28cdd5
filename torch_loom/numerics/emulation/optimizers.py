"""Whether an optimizer's step runs: its arithmetic, on the float32 parameters, is no op of the chip's."""

from __future__ import annotations

import functools
import sys
import threading
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


class _Thread(threading.local):
    """What watches the steps of a thread."""

    def __init__(self) -> None:
        self.watching: list[OptimizerSteps] = []


_thread = _Thread()


# Once, and kept: an optimizer of another thread may be going through the hooks at any moment.
# Twice, where two threads begin at once, changes nothing.
@functools.cache
def _register() -> None:
    register_optimizer_step_pre_hook(_began)
    register_optimizer_step_post_hook(_ended)


def _began(*_: Any) -> None:
    if torch.compiler.is_compiling():
        return  # a step that is compiled is no call of the program's
    for each in _thread.watching:
        each._step = sys._getframe(1)


def _ended(*_: Any) -> None:
    if torch.compiler.is_compiling():
        return
    for each in _thread.watching:
        each._step = None


class OptimizerSteps(threading.local):
    """Follows the steps of all optimizers that this thread makes while it watches."""

    def __init__(self) -> None:
        self._step: FrameType | None = None

    def watch(self) -> None:
        _register()
        _thread.watching.append(self)

    def unwatch(self) -> None:
        _thread.watching.remove(self)
        self._step = None

    def is_stepping(self) -> bool:
        """Whether the caller is part of a step."""
        if self._step is None:
            return False
        # A step that raised has reported no end: it runs only while its frame does.
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame is self._step:
                return True
            frame = frame.f_back
        self._step = None
        return False
