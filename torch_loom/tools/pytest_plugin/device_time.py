"""The fixture ``loom_time``: device time of a block, the same on every machine and under every load.

Installed with the package, so that a test needs to import nothing::

    def test_step(loom_time):
        with loom_time(at_most=2e-3):
            step()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import pytest


@dataclass
class DeviceTime:
    """What a block took; known when it has ended.

    Attributes:
        seconds: from its begin until the device has run all that was issued in it, issuing included.
        host_seconds: until the host had come to its end.
    """

    seconds: float = float("nan")
    host_seconds: float = float("nan")


class LoomTime(Protocol):
    """What the fixture is: a function that returns a context manager."""

    def __call__(
        self, at_most: float | None = None, at_least: float | None = None, device: int = 0
    ) -> AbstractContextManager[DeviceTime]:
        """Time a block; fail the test where that is not between two limits in seconds."""


@pytest.fixture
def loom_time() -> LoomTime:
    """Return a function that times blocks in device time: ``with loom_time(at_most=1e-3) as took: …``."""

    @contextmanager
    def timed(
        at_most: float | None = None, at_least: float | None = None, device: int = 0
    ) -> Iterator[DeviceTime]:
        import torch  # noqa: F401 (which registers the devices)

        from torch_loom import device as loom
        from torch_loom.device._core import clock

        with clock.simulated():
            loom.synchronize(device)
            began = clock.clock()
            took = DeviceTime()
            yield took
            took.host_seconds = clock.clock() - began
            loom.synchronize(device)
            took.seconds = clock.clock(device) - began
        if at_most is not None and took.seconds > at_most:
            pytest.fail(f"device time {took.seconds * 1e6:.3f} us; at most {at_most * 1e6:.3f} us allowed")
        if at_least is not None and took.seconds < at_least:
            pytest.fail(f"device time {took.seconds * 1e6:.3f} us; at least {at_least * 1e6:.3f} us allowed")

    return timed
