"""Bounded queues: between stages, in front of the first and for what a run returns."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Generic, Protocol, TypeVar

from torch_loom.errors import PipelineError, QueueFullError
from torch_loom.pipeline.failure import Lifeline

T = TypeVar("T")
Item = TypeVar("Item", contravariant=True)
_SLICE_SECONDS = 1.0


class Cancelled(Exception):  # noqa: N818 (control flow within the engine; never reaches a program)
    """A wait was cancelled because its run was ended."""


class Writer(Protocol[Item]):
    """The writing end of a queue, whose reader may be in another process."""

    def put(self, item: Item) -> None:
        """Append an entry; wait for room."""


class Channel(Generic[T]):
    """A first-in first-out queue of at most ``capacity`` entries.

    An entry counts from its push until it is released: ``get`` releases it at once, ``take`` leaves that to
    ``release``, so that an entry counts while its stage works on it.
    """

    def __init__(self, name: str, capacity: int, lifeline: Lifeline | None = None) -> None:
        if capacity < 1:
            raise PipelineError(f"queue {name!r}: capacity is {capacity}; a queue has 1 entry or more")
        self.name = name
        self.capacity = capacity
        self._changed = threading.Condition()
        self._items: deque[T] = deque()
        self._held = 0
        self._num_owed = 0
        self._closed: PipelineError | None = None
        self._lifeline = lifeline
        if lifeline is not None:
            lifeline.watch(self.wake)

    def attach(self, lifeline: Lifeline | None) -> None:
        """Bind this queue to the life of a pipeline; with None no pipeline drains it."""
        with self._changed:
            self._lifeline = lifeline
            self._num_owed = 0
        if lifeline is not None:
            lifeline.watch(self.wake)
        else:
            self.wake()

    @property
    def drained(self) -> bool:
        """Whether a pipeline that has not ended reads this queue."""
        return self._lifeline is not None and not self._lifeline.ended

    def __len__(self) -> int:
        """How many entries wait (those that a stage works on do not)."""
        return len(self._items)

    @property
    def num_held(self) -> int:
        """How many entries count against the capacity."""
        return len(self._items) + self._held

    def put(self, item: T, timeout: float | None = None) -> None:
        """Append an entry; wait for room while a pipeline drains the queue.

        Raises:
            QueueFullError: there is no room, and no pipeline runs that would make some, or not in time.
            StageError: the pipeline failed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            self._check()
            while self.num_held >= self.capacity:
                if self._lifeline is None:
                    raise QueueFullError(
                        f"queue {self.name!r} has {self.num_held} entries of {self.capacity}, and nothing "
                        "runs that would drain it: start a run first, or raise the number of entries "
                        "(CompilerConfig.input_queue_entries)"
                    )
                if not self._wait(deadline):
                    raise QueueFullError(
                        f"queue {self.name!r} is full ({self.num_held} of {self.capacity}) after {timeout} s"
                    )
                self._check()
            if self._num_owed:
                self._num_owed -= 1
                return
            self._items.append(item)
            self._changed.notify_all()

    def take(
        self,
        timeout: float | None = None,
        cancel: threading.Event | None = None,
        lifeline: Lifeline | None = None,
    ) -> T:
        """Remove the first entry, which counts until ``release``; wait for one.

        Args:
            timeout: seconds to wait at most.
            cancel: what ends the wait when it is set and ``wake`` is called.
            lifeline: of the reader's pipeline, which may have ended and let go of this queue.

        Raises:
            TimeoutError: there was none in time.
            Cancelled: ``cancel`` was set, and ``wake`` called.
            StageError: the pipeline failed.
            PipelineStoppedError: the pipeline was shut down.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                self._check()
                if lifeline is not None:
                    lifeline.check()
                if cancel is not None and cancel.is_set():
                    raise Cancelled
                if self._items:
                    self._held += 1
                    return self._items.popleft()
                if self._closed is not None:
                    raise self._closed.with_traceback(None)
                if not self._wait(deadline):
                    raise TimeoutError(f"queue {self.name!r} has been empty for {timeout} s")

    def get(
        self,
        timeout: float | None = None,
        cancel: threading.Event | None = None,
        lifeline: Lifeline | None = None,
    ) -> T:
        """Remove and release the first entry; waits and raises as ``take``."""
        item = self.take(timeout, cancel, lifeline)
        self.release()
        return item

    def close(self, error: PipelineError) -> None:
        """Make readers that find no entry raise this: no more will come."""
        with self._changed:
            self._closed = error
            self._changed.notify_all()

    def discard(self, count: int) -> None:
        """Drop the next entries, those that come later too: the rank that reads them has its own copy."""
        with self._changed:
            num_there = min(count, len(self._items))
            for _ in range(num_there):
                self._items.popleft()
            self._num_owed += count - num_there
            self._changed.notify_all()

    def discard_no_more(self) -> None:
        """Keep what is put in from now on."""
        with self._changed:
            self._num_owed = 0

    def peek(self) -> T | None:
        """Return the first entry and leave it, or None if there is none."""
        with self._changed:
            return self._items[0] if self._items else None

    def release(self) -> None:
        """One taken entry is no longer held."""
        with self._changed:
            self._held = max(0, self._held - 1)
            self._changed.notify_all()

    def wait_below(self, held: int) -> None:
        """Wait until fewer than ``held`` entries count.

        Raises:
            StageError: the pipeline failed.
        """
        with self._changed:
            while self.num_held >= held:
                self._check()
                self._wait(None)

    def clear(self) -> int:
        """Drop all entries, even held entries, and return how many waited."""
        with self._changed:
            dropped = len(self._items)
            self._items.clear()
            self._held = self._num_owed = 0
            self._changed.notify_all()
            return dropped

    def wake(self) -> None:
        """Wake all waiting threads."""
        # A killed thread may have kept the lock; waiting threads look by themselves after a slice.
        if self._changed.acquire(timeout=_SLICE_SECONDS):
            self._changed.notify_all()
            self._changed.release()

    def _check(self) -> None:
        if self._lifeline is not None:
            self._lifeline.check()

    def _wait(self, deadline: float | None) -> bool:
        if deadline is None:
            # In slices, so that a signal's handler or an exception set from another thread can run.
            if not self._changed.wait(_SLICE_SECONDS) and self._lifeline is not None:
                self._lifeline.probe()
            return True
        left = deadline - time.monotonic()
        return left > 0 and (self._changed.wait(left) or time.monotonic() < deadline)
