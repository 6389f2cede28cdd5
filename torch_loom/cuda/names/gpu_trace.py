"""Callbacks for what programs do with devices, with the names of ``torch.cuda._gpu_trace``.

They are called in the issuing thread, before the command is submitted (a creation: after it), for the life of
the process. Events and memory are named by their addresses, streams by their ``native_handle``. What a
callback raises is logged and goes no further, but for a ``KeyboardInterrupt``, which the main thread gets
afterwards; commands that a callback itself issues are not reported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec

from torch._utils import CallbackRegistry

from torch_loom import _C
from torch_loom._C import TapeReader

P = ParamSpec("P")

__all__ = [
    "register_callback_for_device_synchronization",
    "register_callback_for_event_creation",
    "register_callback_for_event_deletion",
    "register_callback_for_event_record",
    "register_callback_for_event_synchronization",
    "register_callback_for_event_wait",
    "register_callback_for_memory_allocation",
    "register_callback_for_memory_deallocation",
    "register_callback_for_stream_creation",
    "register_callback_for_stream_synchronization",
]


class _Registry(CallbackRegistry[P]):
    """Callbacks of one kind. The first of all attaches a reader to the tape."""

    def add_callback(self, cb: Callable[P, None]) -> None:
        if not callable(cb):
            raise TypeError(f"cb must be callable, got {type(cb).__name__} {cb!r}")
        super().add_callback(cb)
        _listen()


EventCreationCallbacks: _Registry[[int]] = _Registry("event creation")
EventDeletionCallbacks: _Registry[[int]] = _Registry("event deletion")
EventRecordCallbacks: _Registry[[int, int]] = _Registry("event record")
EventWaitCallbacks: _Registry[[int, int]] = _Registry("event wait")
MemoryAllocationCallbacks: _Registry[[int]] = _Registry("memory allocation")
MemoryDeallocationCallbacks: _Registry[[int]] = _Registry("memory deallocation")
StreamCreationCallbacks: _Registry[[int]] = _Registry("stream creation")
DeviceSynchronizationCallbacks: _Registry[[]] = _Registry("device synchronization")
StreamSynchronizationCallbacks: _Registry[[int]] = _Registry("stream synchronization")
EventSynchronizationCallbacks: _Registry[[int]] = _Registry("event synchronization")

_FIRST_ONLY = {
    TapeReader.CREATE_EVENT: EventCreationCallbacks,
    TapeReader.DESTROY_EVENT: EventDeletionCallbacks,
    TapeReader.SYNCHRONIZE_EVENT: EventSynchronizationCallbacks,
    TapeReader.ALLOCATE: MemoryAllocationCallbacks,
    TapeReader.FREE: MemoryDeallocationCallbacks,
    TapeReader.CREATE_STREAM: StreamCreationCallbacks,
    TapeReader.SYNCHRONIZE_STREAM: StreamSynchronizationCallbacks,
}
_BOTH = {
    TapeReader.RECORD_EVENT: EventRecordCallbacks,
    TapeReader.WAIT_EVENT: EventWaitCallbacks,
}
_lock = threading.Lock()
_listening = False


def _listen() -> None:
    global _listening
    with _lock:
        if not _listening:
            _C.attach_trace(_tell)
            _listening = True


def _tell(kind: int, first: int, second: int) -> None:
    if kind in _FIRST_ONLY:
        _FIRST_ONLY[kind].fire_callbacks(first)
    elif kind in _BOTH:
        _BOTH[kind].fire_callbacks(first, second)
    else:
        DeviceSynchronizationCallbacks.fire_callbacks()


def register_callback_for_event_creation(cb: Callable[[int], None]) -> None:
    """Call ``cb(event)`` when an event is created: when it is first recorded."""
    EventCreationCallbacks.add_callback(cb)


def register_callback_for_event_deletion(cb: Callable[[int], None]) -> None:
    """Call ``cb(event)`` when an event goes."""
    EventDeletionCallbacks.add_callback(cb)


def register_callback_for_event_record(cb: Callable[[int, int], None]) -> None:
    """Call ``cb(event, stream)`` when an event is recorded."""
    EventRecordCallbacks.add_callback(cb)


def register_callback_for_event_wait(cb: Callable[[int, int], None]) -> None:
    """Call ``cb(event, stream)`` when a stream is made to wait for an event."""
    EventWaitCallbacks.add_callback(cb)


def register_callback_for_memory_allocation(cb: Callable[[int], None]) -> None:
    """Call ``cb(address)`` when device memory is taken from the allocator."""
    MemoryAllocationCallbacks.add_callback(cb)


def register_callback_for_memory_deallocation(cb: Callable[[int], None]) -> None:
    """Call ``cb(address)`` when device memory goes back to the allocator."""
    MemoryDeallocationCallbacks.add_callback(cb)


def register_callback_for_stream_creation(cb: Callable[[int], None]) -> None:
    """Call ``cb(stream)`` when a stream of the pool is first handed out."""
    StreamCreationCallbacks.add_callback(cb)


def register_callback_for_device_synchronization(cb: Callable[[], None]) -> None:
    """Call ``cb()`` when the host waits for a device."""
    DeviceSynchronizationCallbacks.add_callback(cb)


def register_callback_for_stream_synchronization(cb: Callable[[int], None]) -> None:
    """Call ``cb(stream)`` when the host waits for a stream."""
    StreamSynchronizationCallbacks.add_callback(cb)


def register_callback_for_event_synchronization(cb: Callable[[int], None]) -> None:
    """Call ``cb(event)`` when the host waits for an event."""
    EventSynchronizationCallbacks.add_callback(cb)
