"""The first failure of a pipeline, and how it reaches all waiting threads."""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
import weakref
from collections.abc import Callable

from torch_loom.errors import PipelineStoppedError, StageError


def stage_error(stage: str, doing: str, error: BaseException) -> StageError:
    """Return the error that says what failed where, with the worker's traceback.

    It is an instance of the original's class too, where Python allows a class with both bases, so that
    ``except ValueError`` works for a ValueError of a stage. ``__cause__`` is the original.
    """
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return StageError.of(
        stage,
        f"stage {stage!r} failed in {doing}: {type(error).__name__}: {error}\n\n{trace.rstrip()}",
        error,
    )


def original_error(module: str, qualname: str, text: str) -> Exception:
    """Return the error that another process raised, of its class where this process has it too."""
    kind: object = sys.modules.get(module)
    for name in qualname.split("."):
        kind = getattr(kind, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(Exception):
            return kind(text)
    return RuntimeError(text)


class Lifeline:
    """Whether a pipeline may go on. The first failure, or its shutdown, wakes all waiting threads.

    Callbacks are held weakly where they are bound methods: a queue without other references is not woken.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], Callable[[], None] | None]] = []
        self._error: StageError | None = None
        self._stopped = False
        self._prune_at = 64
        self.probe: Callable[[], None] = lambda: None
        """Called now and then by waiting threads: records the failure of a worker that died silently."""
        self.on_failure: Callable[[StageError], None] | None = None
        """Called with the first failure, unless ``end_with`` recorded it; must not wait."""

    @property
    def error(self) -> StageError | None:
        """The first failure of any stage, or None."""
        return self._error

    @property
    def ended(self) -> bool:
        """Whether the pipeline failed or was shut down."""
        return self._stopped or self._error is not None

    def watch(self, wake: Callable[[], None]) -> None:
        """Call this method once when the pipeline ends; at once if it has ended."""
        with self._lock:
            ended = self._stopped or self._error is not None
            if not ended:
                if len(self._wakers) >= self._prune_at:
                    self._wakers = [find for find in self._wakers if find() is not None]
                    self._prune_at = 2 * len(self._wakers) + 64
                self._wakers.append(weakref.WeakMethod(wake))
        if ended:
            wake()

    def fail(self, stage: str, doing: str, error: BaseException) -> None:
        """Record a failure unless there is one already, and wake all waiting threads."""
        self._end(stage_error(stage, doing, error), self.on_failure)

    def end_with(self, error: StageError) -> None:
        """Record this failure unless there is one already, and wake all waiting threads."""
        self._end(error, None)

    def _end(self, error: StageError, tell: Callable[[StageError], None] | None) -> None:
        with self._lock:
            if self._error is None and not self._stopped:
                # Notify the other ranks first: a thread that sees the error here may shut down.
                if tell is not None:
                    tell(error)
                self._error = error
        self._wake()

    def stop(self) -> None:
        """End the pipeline without a failure."""
        with self._lock:
            self._stopped = True
        self._wake()

    def check(self) -> None:
        """Raise what ended the pipeline.

        Raises:
            StageError: a stage failed.
            PipelineStoppedError: the pipeline was shut down.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._stopped:
            raise PipelineStoppedError("the pipeline was shut down; start it again to go on")

    def _wake(self) -> None:
        with self._lock:
            wakers, self._wakers = self._wakers, []
        for find in wakers:
            wake = find()
            if wake is not None:
                wake()
