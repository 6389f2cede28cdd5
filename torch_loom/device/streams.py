"""Streams and events: PyTorch's device-generic ones, chosen per device and thread."""

from __future__ import annotations

from types import TracebackType

import torch
from torch.types import Device

from torch_loom import _C
from torch_loom.device._init import _lazy_init
from torch_loom.device._utils import DEVICE_TYPE, _existing_index
from torch_loom.errors import DeviceTypeError

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "set_stream",
    "stream",
]

Stream = torch.Stream
Event = torch.Event


def _checked_stream(stream: object) -> torch.Stream:
    if not isinstance(stream, torch.Stream):
        raise TypeError(f"Expected a torch.Stream, but got {stream!r} ({type(stream).__name__})")
    if stream.device.type != DEVICE_TYPE:
        raise DeviceTypeError(f"Expected a stream of a {DEVICE_TYPE} device, but got one of {stream.device}")
    return stream


def current_stream(device: Device = None) -> torch.Stream:
    """Return the stream that this thread submits to on a device.

    Args:
        device: which one; the current one if None.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return torch.accelerator.current_stream(_existing_index(device))


def default_stream(device: Device = None) -> torch.Stream:
    """Return the stream that is current on a device if none was chosen.

    Args:
        device: which one; the current one if None.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    stream_id, device_index, device_type = _C.default_stream(_existing_index(device))
    return torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)


def set_stream(stream: torch.Stream | None) -> None:
    """Submit to a stream from now on in this thread, and make its device current. None does nothing.

    Raises:
        TypeError: ``stream`` is not a stream.
        DeviceTypeError: it is a stream of another kind of device.
    """
    if stream is None:
        return
    checked = _checked_stream(stream)
    _lazy_init()
    torch.accelerator.set_stream(checked)


class StreamContext:
    """Context manager that submits to a stream; on exit, what was current on both devices is so again.

    Args:
        stream: a stream of any loom device; None does nothing.

    Raises:
        TypeError: ``stream`` is not a stream.
        DeviceTypeError: it is a stream of another kind of device.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = None if stream is None else _checked_stream(stream)
        # A stack: one context may be entered again while it is active.
        self._previous: list[tuple[torch.Stream, torch.Stream]] = []

    def __enter__(self) -> None:
        if self.stream is None:
            return
        self._previous.append((current_stream(), current_stream(self.stream.device)))
        set_stream(self.stream)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        if self.stream is None:
            return
        source, destination = self._previous.pop()
        set_stream(destination)
        set_stream(source)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context manager that submits to a stream; see :class:`StreamContext`."""
    return StreamContext(stream)
