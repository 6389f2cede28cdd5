"""Queues of the program's own: their ``get`` raises what ended the pipeline instead of waiting for ever."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

from torch_loom.errors import PipelineError, QueueTypeError
from torch_loom.pipeline.failure import Lifeline

_SLICE_SECONDS = 1.0
_POLL_SECONDS = 0.05  # for queues of other processes, which cannot be woken


class GuardedQueue:
    """A program's queue while a pipeline writes to it.

    ``get`` is replaced on the instance: it returns what is in the queue, and raises the pipeline's failure
    once there is nothing more. Readers that waited before are woken too. The class is left alone.

    Raises:
        QueueTypeError: the queue takes no attributes (``queue.SimpleQueue``), or has no ``put`` and ``get``.
    """

    def __init__(self, target: Any, lifeline: Lifeline) -> None:
        if not callable(getattr(target, "put", None)) or not callable(getattr(target, "get", None)):
            raise QueueTypeError(
                f"{type(target).__name__} is no queue: it needs put() and get(), such as queue.Queue has"
            )
        # A second run on the same queue guards it anew, and not the guard of the first.
        earlier = getattr(target, "_loom_guard", None)
        if isinstance(earlier, GuardedQueue):
            earlier.release()
        self.target = target
        self._lifeline = lifeline
        self._writers = 0
        self._writers_lock = threading.Lock()
        self._closed: PipelineError | None = None
        self._plain_get = target.get
        try:
            target._loom_guard = self
            target.get = self.get
        except (AttributeError, TypeError):
            raise QueueTypeError(
                f"{type(target).__name__} takes no attributes, so errors of the pipeline could not reach its "
                "readers: pass a queue.Queue"
            ) from None
        lifeline.watch(self._wake)

    @classmethod
    def of(cls, target: Any, lifeline: Lifeline) -> GuardedQueue:
        """Return the guard of a queue for this pipeline; makes it if there is none."""
        guard = getattr(target, "_loom_guard", None)
        return guard if isinstance(guard, cls) and guard._lifeline is lifeline else cls(target, lifeline)

    def put(self, item: object) -> None:
        """Append an entry; wait for room, unless the pipeline ends."""
        while True:
            try:
                self.target.put(item, True, _POLL_SECONDS)
                return
            except queue.Full:
                self._lifeline.check()

    def add_writer(self) -> None:
        """Count one more writer, which puts entries in until it calls ``end_writer``."""
        with self._writers_lock:
            self._writers += 1

    def end_writer(self, error: PipelineError) -> None:
        """Count one writer less; after the last, readers of the empty queue get this error."""
        with self._writers_lock:
            self._writers -= 1
            if self._writers > 0:
                return
            self._closed = error
        self._wake()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove and return an entry, as ``queue.Queue.get``; raise the pipeline's failure if there is none.

        Raises:
            queue.Empty: there is no entry, or none within ``timeout`` seconds.
            StageError: the pipeline failed, and there is no entry left.
        """
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        if not isinstance(self.target, queue.Queue):
            return self._polled(block, timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        own = self.target
        with own.not_empty:
            while not own._qsize():
                self._raise_failure()
                left = None if deadline is None else deadline - time.monotonic()
                if not block or (left is not None and left <= 0):
                    raise queue.Empty
                try:
                    if not own.not_empty.wait(_SLICE_SECONDS if left is None else min(left, _SLICE_SECONDS)):
                        self._lifeline.probe()
                except KeyboardInterrupt:
                    self._lifeline.stop()
                    raise
            item = own._get()
            own.not_full.notify()
            return item

    def release(self) -> None:
        """Give the queue its own methods back."""
        attributes = vars(self.target)
        if attributes.get("_loom_guard") is self:
            for name in ("get", "_loom_guard"):
                attributes.pop(name, None)
            self._unhook()

    @property
    def _end(self) -> PipelineError | None:
        """What a read of the empty queue raises, or None while something may come."""
        return self._lifeline.error or self._closed

    def _raise_failure(self) -> None:
        if (error := self._end) is not None:
            raise error.with_traceback(None)

    def _polled(self, block: bool, timeout: float | None) -> Any:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _POLL_SECONDS if deadline is None else min(_POLL_SECONDS, deadline - time.monotonic())
            failed = self._end is not None
            try:
                return self._plain_get(block and left > 0, max(left, 0))
            except queue.Empty:
                # What was put before the failure is read first: only an empty look after it counts.
                if failed:
                    self._raise_failure()
                self._lifeline.probe()
                if not block or (deadline is not None and time.monotonic() >= deadline):
                    raise
            except KeyboardInterrupt:
                self._lifeline.stop()
                raise

    def _wake(self) -> None:
        if self._end is None or not isinstance(self.target, queue.Queue):
            return
        if not self.target.mutex.acquire(timeout=_SLICE_SECONDS):
            return  # a killed thread kept it; readers look by themselves after a slice
        try:
            if not self.target._qsize():
                # Readers that came before the guard wait in the class's own get(), which asks these two.
                plain = type(self.target)._get

                def get_or_raise() -> Any:
                    if not type(self.target)._qsize(self.target):
                        self._raise_failure()
                    return plain(self.target)

                self.target._get = get_or_raise  # type: ignore[method-assign]
                self.target._qsize = self._size_for_waiters  # type: ignore[method-assign]
            self.target.not_empty.notify_all()
        finally:
            self.target.mutex.release()

    def _size_for_waiters(self) -> int:
        size = type(self.target)._qsize(self.target)
        return int(size) or (1 if self._early_readers() else 0)

    def _early_readers(self) -> bool:
        return self._end is not None and self.target.maxsize <= 0

    def _unhook(self) -> None:
        for name in ("_get", "_qsize"):
            vars(self.target).pop(name, None)
