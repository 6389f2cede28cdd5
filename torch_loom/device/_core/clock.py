"""Simulated time: which costs the clock takes, and when it runs instead of the host's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from torch_loom import _C, config
from torch_loom.device._core import first_use
from torch_loom.device._core.device_index import _get_device_index

__all__ = ["clock"]


class Estimator(Protocol):
    """What knows how long commands take; :class:`torch_loom.chips.estimator.Estimator` does."""

    attributes: Sequence[str]

    def describe(self, device: int) -> tuple[int, int]:
        """Return the number of a device's chip, and the nanoseconds that issuing a command takes."""

    def kernel_ns(
        self, chip: int, name: str, inputs: Any, outputs: Any, attributes: Mapping[str, Any]
    ) -> int:
        """Return nanoseconds of a kernel, by the number of a chip."""

    def move_ns(self, chip: int, move: int, size_bytes: int) -> int:
        """Return nanoseconds of a copy or fill."""

    def collective_ns(
        self, device: int, name: str, size_bytes: int, ranks: Sequence[int], topology: str | None
    ) -> int:
        """Return nanoseconds of a collective of ranks whose chips are like this device's."""


Figures = Mapping[str, float]
_make: Callable[[Callable[[int], Figures]], Estimator] | None = None
_estimator: Estimator | None = None


def set_estimator(make: Callable[[Callable[[int], Figures]], Estimator]) -> None:
    """Say how an estimator is made, from what gives a device's figures: this layer knows no chips."""
    global _make
    _make = make


def start() -> None:
    """Have the clock simulated from now on; calls are counted."""
    global _estimator
    if _estimator is None:
        assert _make is not None, "torch_loom._register sets it"
        _estimator = _make(first_use._chip_figures)
    _C.simulate_time(
        describe=_estimator.describe,
        kernel_ns=_estimator.kernel_ns,
        move_ns=_estimator.move_ns,
        attributes=list(_estimator.attributes),
    )


def collective_ns(device: int, name: str, size_bytes: int, ranks: Sequence[int], topology: str | None) -> int:
    """Return nanoseconds of a collective, as an :class:`Estimator` does; 0 where time is not simulated."""
    if _estimator is None:
        return 0
    return _estimator.collective_ns(device, name, size_bytes, ranks, topology)


@contextmanager
def simulated() -> Iterator[None]:
    """Simulate time in the body, whatever the setting says."""
    first_use._lazy_init()
    start()
    try:
        yield
    finally:
        _C.stop_simulating_time()


def clock(device: Any = None) -> float:
    """Return the time in seconds: that of the simulated clock where ``TORCH_LOOM_CLOCK`` is ``simulated``.

    Simulated time begins at 0 and goes on with what is issued and waited for, not with this machine's time.

    Args:
        device: None for the time that the host has come to; a device for when it will have run all that was
            issued to it. Under ``wall`` both are the host's monotonic time.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    first_use._lazy_init()
    return _C.clock_ns(-1 if device is None else _get_device_index(device)) * 1e-9


def _start_if_set(settings: config.Settings) -> None:
    if settings.clock == "simulated":
        start()


first_use.at_first_use(_start_if_set)
