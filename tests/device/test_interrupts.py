"""Ctrl-C, and every other signal with a handler, ends a wait for a device at once; the work goes on."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from tests.gate import Gate, installed

SIGNAL = signal.SIGUSR1  # pytest has a use for SIGINT and SIGALRM


class Interrupted(BaseException):
    """What the handler raises, as Python's own raises KeyboardInterrupt."""


@contextmanager
def interrupted(give_up: Callable[[], object]) -> Iterator[None]:
    """Send signals until the handler has raised from the block; give up after some seconds."""
    is_over = threading.Event()
    is_armed = True

    def handle(*args: object) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise Interrupted

    def send() -> None:
        for _ in range(400):
            if is_over.wait(0.02):
                return
            os.kill(os.getpid(), SIGNAL)
        give_up()

    before = signal.signal(SIGNAL, handle)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(Interrupted):
            yield
    finally:
        is_armed = False
        is_over.set()
        sender.join()
        signal.signal(SIGNAL, before)


@pytest.fixture
def gate() -> Iterator[Gate]:
    with installed() as gate:
        yield gate


def waits(x: torch.Tensor, stream: torch.Stream) -> dict[str, Callable[[], object]]:
    event = torch.Event("loom")
    event.record(stream)
    pinned = torch.empty(4).pin_memory()
    return {
        "stream.synchronize": stream.synchronize,
        "torch.loom.synchronize": torch.loom.synchronize,
        "torch.accelerator.synchronize": torch.accelerator.synchronize,
        "event.synchronize": event.synchronize,
        "item": x[0].item,
        "tolist": x.tolist,
        "cpu": x.cpu,
        "to pinned memory": lambda: pinned.copy_(x),
        "from pageable memory": lambda: x.copy_(torch.ones(4)),
        "nonzero": x.nonzero,
        "bool": lambda: bool(x[0] > 0),
    }


def test_a_signal_ends_each_wait(gate: Gate) -> None:
    x, stream = torch.ones(4, device="loom"), torch.Stream("loom")
    torch.loom.synchronize()
    with stream:
        gate.hold(stream)
        x.add_(1)
        for name, wait in waits(x, stream).items():
            with interrupted(gate.open):
                wait()
            assert not stream.query(), f"{name} went on"
        gate.open()
        stream.synchronize()
        assert x.tolist() == [2.0] * 4
