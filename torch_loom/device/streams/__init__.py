"""Streams and events: ``torch.Stream`` and ``torch.Event`` with what CUDA's classes have beyond them.

Work submitted to a stream runs in the order of submission; work of two streams is ordered by events only.
"""

from __future__ import annotations

import ctypes
import threading
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

import torch
from torch.types import Device

from torch_loom import _C, config
from torch_loom.device._core.device_index import DEVICE_TYPE, _existing_index
from torch_loom.device._core.first_use import _lazy_init
from torch_loom.device.streams.events import Event, _checked_event, _checked_stream
from torch_loom.errors import DeviceTypeError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "get_stream_from_external",
    "set_stream",
    "stream",
]


class Stream(torch.Stream):
    """A queue of work on one device. It runs on a worker of its own, beside the host and other streams.

    Streams come from a pool of 32 of each priority and device, handed out in turn: the 33rd is the first
    again. As a context manager it makes itself and its device current, and restores both.

    Args:
        device: which one; the current one if None or negative.
        priority: lower is more urgent. What is outside :meth:`priority_range` counts as its nearest end.
        stream_id: with ``device_index``: another object for an existing stream, as its attributes name it.
        device_index: see ``stream_id``.
        device_type: see ``stream_id``; that of these devices if None.

    Raises:
        InvalidDeviceError: there is no such device.
        DeviceTypeError: the device is of another type.
        TypeError: only one of ``stream_id`` and ``device_index`` is given, or a value has a wrong type.
        ValueError: no stream has this ``stream_id``.
    """

    def __new__(
        cls,
        device: Device = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int | None = None,
    ) -> Self:
        if stream_id is None and device_index is None:
            where = torch.device(DEVICE_TYPE, _index(device))
            return super().__new__(cls, device=where, priority=priority)
        if stream_id is None or device_index is None:
            raise TypeError(
                "stream_id and device_index name a stream together, but got "
                f"stream_id={stream_id!r}, device_index={device_index!r}"
            )
        _, index, own_type = _C.default_stream(_existing_index(device_index))
        if device_type not in (None, own_type):
            raise DeviceTypeError(f"Expected device_type {own_type} ({DEVICE_TYPE}), but got {device_type!r}")
        self = super().__new__(cls, stream_id=stream_id, device_index=index, device_type=own_type)
        _ = self.native_handle  # type: ignore[attr-defined]  # ValueError if there is no such stream
        return self

    def __enter__(self) -> Self:
        _entered().append(StreamContext(self))
        _entered()[-1].__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        if not _entered() or _entered()[-1].stream != self:
            raise RuntimeError(f"{self!r} is not the stream that was entered last by this thread")
        _entered().pop().__exit__(exc_type, exc_value, exc_traceback)

    @property
    def priority(self) -> int:
        """0, or less for the more urgent streams."""
        return _C.stream_priority(self.stream_id)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the least and the greatest priority: ``(0, -1)``; under the name cuda ``(0, -3)``."""
        return 0, _C.highest_priority()

    @property
    def loom_stream(self) -> int:
        """The stream's native handle, by which C code and :class:`ExternalStream` know it."""
        handle: int = self.native_handle  # type: ignore[attr-defined]
        return handle

    @property
    def cuda_stream(self) -> int:
        """The same, but 0 for the default stream, as CUDA's is."""
        return self.loom_stream if self.stream_id else 0

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        # What ctypes passes to a C function.
        return ctypes.c_void_p(self.loom_stream)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Mark the point that the stream has reached.

        Args:
            event: what to mark it with; a new :class:`Event` without timing if None.

        Returns:
            The event.

        Raises:
            TypeError: ``event`` is not an event.
            RuntimeError: the event was recorded on another device before.
        """
        recorded = self._new_event() if event is None else _checked_event(event)
        recorded.record(self)
        return recorded

    _new_event: ClassVar[type[Event]] = Event

    def wait_event(self, event: torch.Event) -> None:
        """Let all later work of this stream start after an event. The host does not wait.

        Raises:
            TypeError: ``event`` is not an event.
        """
        super().wait_event(_checked_event(event))

    def wait_stream(self, stream: torch.Stream) -> None:
        """Let all later work of this stream start after what was submitted to another stream so far.

        Args:
            stream: a stream of any device of this type. The host does not wait for it.

        Raises:
            TypeError: ``stream`` is not a stream.
            DeviceTypeError: it is a stream of another kind of device.
        """
        super().wait_stream(_checked_stream(stream))

    def query(self) -> bool:
        """Return whether everything submitted has finished; does not wait."""
        return super().query()

    def synchronize(self) -> None:
        """Wait until everything submitted has finished.

        Raises:
            Exception: what an op of this stream has failed with, and what was not raised yet. The ops behind
                it were dropped; the stream can be used again.
        """
        super().synchronize()

    def __repr__(self) -> str:
        is_cuda = DEVICE_TYPE == config.CUDA_NAME
        stream = f"cuda_stream={self.cuda_stream:#x}" if is_cuda else f"stream_id={self.stream_id}"
        return f"<torch.{DEVICE_TYPE}.Stream device={self.device} {stream}>"


class ExternalStream(Stream):
    """A stream that other code names by its native handle, such as a C library.

    Args:
        stream_ptr: the :attr:`Stream.native_handle` of a stream; 0: the default stream of ``device``.
        device: the stream's; that to which it belongs if None (for 0: the current one).

    Raises:
        TypeError: ``stream_ptr`` is no int.
        ValueError: it is the handle of no stream.
        InvalidDeviceError: there is no such device.
        DeviceTypeError: the stream is another device's.
    """

    def __new__(cls, stream_ptr: int, device: Device = None) -> Self:
        stream_id, device_index, device_type = _external_handle(stream_ptr, device)
        return torch.Stream.__new__(
            cls, stream_id=stream_id, device_index=device_index, device_type=device_type
        )


def get_stream_from_external(data_ptr: int, device: Device = None) -> Stream:
    """Return the stream with a native handle; arguments and errors are those of :class:`ExternalStream`."""
    return _stream(_external_handle(data_ptr, device))


def _external_handle(native_handle: int, device: Device) -> tuple[int, int, int]:
    if not isinstance(native_handle, int) or isinstance(native_handle, bool):
        raise TypeError(
            f"the handle of a stream must be an int, got {type(native_handle).__name__} {native_handle!r}"
        )
    index = None if device is None else _index(device)
    _lazy_init()
    if native_handle == 0:
        return _C.default_stream(_index(index))
    found = _C.find_stream(native_handle) if 0 < native_handle < 2**64 else None
    if found is None:
        raise ValueError(
            f"{native_handle:#x} is the handle of no {DEVICE_TYPE} stream: pass the native_handle of one"
        )
    if index not in (None, found[1]):
        raise DeviceTypeError(
            f"The stream {native_handle:#x} is one of {DEVICE_TYPE}:{found[1]}, not of {DEVICE_TYPE}:{index}"
        )
    return found


def _index(device: Device) -> int:
    """Return the index of an existing device: the current one for None and, as in CUDA, negative ones."""
    return _existing_index(None if isinstance(device, int) and device < 0 else device)


_S = TypeVar("_S", bound=Stream)


def _stream_of(kind: type[_S], handle: tuple[int, int, int]) -> _S:
    """Return the stream of a handle of the core: known to exist."""
    stream_id, device_index, device_type = handle
    return torch.Stream.__new__(kind, stream_id=stream_id, device_index=device_index, device_type=device_type)


def _stream(handle: tuple[int, int, int]) -> Stream:
    return _stream_of(Stream, handle)


def current_stream(device: Device = None) -> Stream:
    """Return the stream that this thread submits to on a device.

    Args:
        device: which one; the current one if None or negative.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return _stream(_C.current_stream(_index(device)))


def default_stream(device: Device = None) -> Stream:
    """Return the stream that is current on a device if none was chosen.

    With nothing pending, its work runs in the thread that submits it.

    Args:
        device: which one; the current one if None or negative.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return _stream(_C.default_stream(_index(device)))


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


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    """Submit to the stream with these attributes from now on; see :func:`set_stream`.

    Raises:
        TypeError: an argument is no int.
        ValueError: no stream has this ``stream_id``.
        DeviceTypeError: the device is of another type.
        InvalidDeviceError: there is no such device.
    """
    set_stream(Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


_contexts = threading.local()


def _entered() -> list[StreamContext]:
    """The streams that this thread has entered as context managers, the last at the end."""
    if not hasattr(_contexts, "stack"):
        _contexts.stack = []
    return cast("list[StreamContext]", _contexts.stack)


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
