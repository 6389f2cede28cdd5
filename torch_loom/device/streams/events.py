"""Events: ``torch.Event`` with what CUDA's class has beyond it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch
from torch.types import Device

from torch_loom import _C
from torch_loom.device._core.device_index import DEVICE_TYPE, _existing_index
from torch_loom.errors import DeviceTypeError

if TYPE_CHECKING:
    from typing_extensions import Self


class Event(torch.Event):
    """A point in the work of a stream, to wait for or to measure from.

    It belongs to the device that it is first recorded on; streams of any device can wait for it. An event
    that was never recorded counts as finished.

    Args:
        enable_timing: keep the time, for :meth:`elapsed_time`.
        blocking: let :meth:`synchronize` sleep. It always does, after some microseconds.
        interprocess: let other processes wait for it; see :meth:`ipc_handle`. It keeps no time then.

    Raises:
        ValueError: both ``interprocess`` and ``enable_timing``.
    """

    _is_shared = False

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Self:
        if interprocess and enable_timing:
            raise ValueError("an event for several processes keeps no time: set enable_timing=False")
        self = super().__new__(
            cls,
            device=DEVICE_TYPE,
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )
        self._is_shared = interprocess
        return self

    @property
    def device(self) -> torch.device | None:  # type: ignore[override]
        """The device that it was first recorded on; None before."""
        return super().device if self.event_id else None

    @property
    def cuda_event(self) -> int:
        """The event's native handle, 0 before it is first recorded."""
        return self.event_id

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.event_id)

    def record(self, stream: torch.Stream | None = None) -> None:
        """Mark the point that a stream has reached. Earlier waits still wait for the earlier record.

        Args:
            stream: a stream of the event's device; the current one of the current device if None.

        Raises:
            TypeError: ``stream`` is not a stream.
            DeviceTypeError: it is a stream of another kind of device.
            RuntimeError: it is a stream of another device than the event's.
        """
        is_first = self._is_shared and not self.event_id
        where = torch.accelerator.current_stream() if is_first and stream is None else stream
        super().record(None if where is None else _checked_stream(where))
        if is_first:
            assert where is not None
            _C.share_event(self, True, where.device_index, where.stream_id)

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Let all later work of a stream start after this event. The host does not wait.

        Args:
            stream: a stream of any device; the current one of the current device if None.

        Raises:
            TypeError: ``stream`` is not a stream.
            DeviceTypeError: it is a stream of another kind of device.
        """
        super().wait(None if stream is None else _checked_stream(stream))

    def query(self) -> bool:
        """Return whether the work before the event has finished; does not wait."""
        return super().query()

    def synchronize(self) -> None:
        """Wait until the work before the event has finished.

        Raises:
            Exception: what an op before the event has failed with, and what was not raised yet.
        """
        super().synchronize()

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Return the milliseconds from this event to another; negative if the other came first.

        Args:
            end_event: any event of the same device.

        Raises:
            TypeError: ``end_event`` is not an event.
            ValueError: an event was made without timing, or never recorded.
            RuntimeError: an event has not finished or was recorded behind a failed op, or they are of
                different devices.
        """
        end = _checked_event(end_event)
        if self.event_id and end.event_id and self.device != end.device:
            raise RuntimeError(
                f"Both events must be of one device, but they were recorded on {self.device} and {end.device}"
            )
        return _C.elapsed_time_ms(self, end)

    def ipc_handle(self) -> bytes:
        """Return a handle for :meth:`from_ipc_handle` in other processes, valid while this event lives.

        An event travels through ``torch.multiprocessing`` by itself.

        Raises:
            ValueError: the event was made without ``interprocess=True``.
            SharingError: the host refuses.
        """
        if not self._is_shared:
            raise ValueError("only an Event(interprocess=True) can be shared with other processes")
        if not self.event_id:
            # Something to share: where nothing is recorded afterwards, it counts as finished.
            super().record()
            _C.share_event(self, False, 0, 0)
        return _C.event_handle(self)

    @classmethod
    def from_ipc_handle(cls, device: Device, handle: bytes) -> Event:
        """Return the event that another process shares. Either may record it, and wait for it.

        Waiting for it raises SharingError when the process that recorded it was killed before the work had
        finished, or when that work failed.

        Args:
            device: where it is recorded, if it is.
            handle: what :meth:`ipc_handle` returned.

        Raises:
            TypeError: ``handle`` is not bytes.
            SharingError: it is no handle of an event, or the event no longer exists.
            InvalidDeviceError: there is no such device.
        """
        if not isinstance(handle, bytes):
            raise TypeError(f"handle must be bytes, got {type(handle).__name__}")
        index = _existing_index(device)
        event = cls(interprocess=True)
        torch.Event.record(event, torch.accelerator.current_stream(index))
        _C.open_event(event, handle)
        return event

    def __repr__(self) -> str:
        state = f"{self.event_id:#x} device={self.device}" if self.event_id else "uninitialized"
        return f"<torch.{DEVICE_TYPE}.Event {state}>"


def _checked_stream(stream: object) -> torch.Stream:
    if not isinstance(stream, torch.Stream):
        raise TypeError(f"Expected a torch.Stream, but got {stream!r} ({type(stream).__name__})")
    if stream.device.type != DEVICE_TYPE:
        raise DeviceTypeError(f"Expected a stream of a {DEVICE_TYPE} device, but got one of {stream.device}")
    return stream


def _checked_event(event: object) -> torch.Event:
    if not isinstance(event, torch.Event):
        raise TypeError(f"Expected a torch.Event, but got {event!r} ({type(event).__name__})")
    return event
