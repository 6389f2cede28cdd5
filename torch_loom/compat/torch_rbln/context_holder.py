"""``torch_rbln.device.context_holder``: the tensor that a call compiled for the device writes its result to.

Ops are not compiled one by one here, and write to the tensor that they are given as ``out``. The tensor of a
context is kept for programs that ask for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["helper", "out_tensor_context"]


class _Helper(threading.local):
    """Holds the tensor of this thread's context."""

    out_tensor: torch.Tensor | None = None

    def set_out_tensor(self, out_tensor: torch.Tensor) -> None:
        self.out_tensor = out_tensor

    def clear_out_tensor(self) -> None:
        self.out_tensor = None


helper = _Helper()


@contextmanager
def out_tensor_context(out_tensor: torch.Tensor | None = None) -> Iterator[None]:
    """Hold ``out_tensor`` within a ``with`` block, and none afterwards."""
    if out_tensor is not None:
        helper.set_out_tensor(out_tensor)
    try:
        yield
    finally:
        helper.clear_out_tensor()
