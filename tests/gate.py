"""Work that holds a stream up for as long as a test wants."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Generous: only a test that hangs ever waits so long.
TIMEOUT_S = 30.0


class Gate:
    """An op whose kernel waits until the gate is open. What is queued behind it waits, too.

    The engine's kernel of an op that nobody else tests is replaced, so that it runs as every op does.
    """

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.thread = 0  # the last one that ran the op

    def hold(self, stream: torch.Stream) -> None:
        """Let `stream`, which has a worker, wait from here on until open() is called."""
        operand = torch.ones(1, device=stream.device)
        with stream:
            torch.special.bessel_j1(operand)  # in place, where nothing is known of it yet
            stream.synchronize()
            self._open.clear()
            torch.special.bessel_j1(operand)
        assert not stream.query()

    def open(self) -> None:
        """Let all streams go on."""
        self._open.set()

    def wait(self, operand: torch.Tensor) -> torch.Tensor:
        """Stand in for the engine's kernel."""
        self.thread = threading.get_ident()
        assert self._open.wait(TIMEOUT_S), "nobody opened the gate"
        return torch.zeros_like(operand)


@contextmanager
def installed() -> Iterator[Gate]:
    """Provide a gate; on leaving, it is open and the kernel is the engine's again."""
    gate = Gate()
    with torch.library._scoped_library("aten", "IMPL") as library, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "overriding a previously registered kernel"
        library.impl("special_bessel_j1", gate.wait, "CPU")
        try:
            yield gate
        finally:
            gate.open()
            for device in range(torch.accelerator.device_count()):
                torch.accelerator.synchronize(device)
