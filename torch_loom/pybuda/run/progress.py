"""The progress of a run: micro-batches done, their rate, the loss (``CompilerConfig.show_progress``)."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TextIO

import torch

_WIDTH = 30
_EVERY_SECONDS = 0.1  # a terminal is no faster


class Progress:
    """Writes one line, again and again: ``[####....] 12/40 micro-batches, 3.1/s, loss 2.31``.

    Args:
        total: micro-batches of the run; 0 where it has no known end.
        stream: default: standard error.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total = total
        self.num_done = 0
        self._stream = stream if stream is not None else sys.stderr
        self._begin = time.monotonic()
        self._written = 0.0
        self._ended = False

    def __call__(self, losses: Sequence[torch.Tensor]) -> None:
        """One micro-batch is done; ``losses`` are its losses, none in inference."""
        self.num_done += 1
        now = time.monotonic()
        is_last = self.num_done == self.total
        if is_last or now - self._written >= _EVERY_SECONDS:
            self._written = now
            loss = sum(float(each.detach().float().mean()) for each in losses) if losses else None
            self._stream.write("\r" + self.line(now - self._begin, loss))
            if is_last:
                self._stream.write("\n")
                self._ended = True
            self._stream.flush()

    def line(self, seconds: float, loss: float | None) -> str:
        """Return the line after so many seconds."""
        rate = self.num_done / seconds if seconds > 0 else 0.0
        counted = f"{self.num_done}/{self.total}" if self.total else str(self.num_done)
        filled = _WIDTH * min(self.num_done, self.total) // self.total if self.total else 0
        bar = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] " if self.total else ""
        tail = "" if loss is None else f", loss {loss:.4g}"
        return f"{bar}{counted} micro-batches, {rate:.1f}/s{tail}"

    def close(self) -> None:
        """End the line of a run that ended before its count."""
        if self._written and not self._ended:
            self._stream.write("\n")
            self._stream.flush()
            self._ended = True
