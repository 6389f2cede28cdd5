"""Streams and events as the vendor has them: without priorities and without times."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import torch
from torch.types import Device

from torch_loom import _C
from torch_loom.device import streams
from torch_loom.device.streams import StreamContext, _index, _stream_of, set_stream, stream
from torch_loom.errors import NotApplicableError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream"]


class Event(streams.Event):
    """A point in the work of a stream, to wait for; arguments are those of ``torch.loom.Event``.

    ``enable_timing`` is accepted, and no time is kept.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Self:
        return super().__new__(cls, blocking=blocking, interprocess=interprocess)

    def elapsed_time(self, other: torch.Event) -> NoReturn:
        """Raise: the vendor's events have no times.

        Raises:
            NotApplicableError: always; it is a RuntimeError, too.
        """
        raise NotApplicableError(
            "RBLN does not support Event.elapsed_time (event timing is not supported). "
            "torch.loom.Event(enable_timing=True) measures the chip's simulated time."
        )

    def __repr__(self) -> str:
        return f"torch.rbln.Event(device={self.device})"


class Stream(streams.Stream):
    """A queue of work on one device, as ``torch.loom.Stream``; ``priority`` is accepted and means nothing."""

    def __new__(
        cls,
        device: Device = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int | None = None,
    ) -> Self:
        return super().__new__(
            cls, device, 0, stream_id=stream_id, device_index=device_index, device_type=device_type
        )

    @property
    def priority(self) -> int:
        """0."""
        return 0

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the least and the greatest priority: ``(0, 0)``, since there are none."""
        return 0, 0

    _new_event = Event

    def __repr__(self) -> str:
        return f"torch.rbln.Stream(device={self.device}, stream_id={self.stream_id})"


def current_stream(device: Device = None) -> Stream:
    """Return the stream that this thread submits to on a device; the current one if None or negative.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return _stream_of(Stream, _C.current_stream(_index(device)))


def default_stream(device: Device = None) -> Stream:
    """Return the stream that is current on a device if none was chosen.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return _stream_of(Stream, _C.default_stream(_index(device)))
