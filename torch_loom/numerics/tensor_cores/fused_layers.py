"""PyTorch's switches of the process that let one kernel take a whole layer: off where its products count."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


class _Off:
    """A context in which switches are off, as long as any thread is in it."""

    def __init__(self, turn_off: Callable[[ExitStack], None]) -> None:
        self._lock, self._count, self._before = threading.Lock(), 0, ExitStack()
        self._turn_off = turn_off

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._turn_off(self._before)

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._before.pop_all().close()


def _transformers(before: ExitStack) -> None:
    before.enter_context(sdpa_kernel(SDPBackend.MATH))
    before.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
    torch.backends.mha.set_fastpath_enabled(False)


def _recurrent_layers(before: ExitStack) -> None:
    before.callback(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled())
    torch._C._set_mkldnn_enabled(False)


WITHOUT_FUSED_LAYERS = _Off(_transformers)
WITHOUT_RECURRENT_KERNELS = _Off(_recurrent_layers)
