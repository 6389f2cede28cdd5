"""Ranges and marks of a program, as in ``torch.cuda.nvtx``: they stand in the profile of ``torch.profiler``.

A range that begins and ends within a profile is a user annotation on the row of the thread in which it ended;
a range that was pushed is also one on the row of each stream, from the first command issued in it to the
last. Without a profile they cost about a microsecond and leave nothing. No device is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch_loom import _C

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def _checked(function: str, msg: str) -> str:
    if not isinstance(msg, str):
        raise TypeError(f"{function}: msg must be a str, got {type(msg).__name__}")
    return msg


def range_push(msg: str) -> int:
    """Begin a range within those that this thread has begun, and return its depth: 0 for the outermost.

    Raises:
        TypeError: ``msg`` is no text.
    """
    return _C.nvtx_range_push(_checked("range_push", msg))


def range_pop() -> int:
    """End the range that this thread has pushed last, and return its depth.

    Without one nothing happens and -2 is returned, as the NVTX library does.
    """
    return _C.nvtx_range_pop()


def range_start(msg: str) -> int:
    """Begin a range that any thread may end, and return the number to end it with.

    Such ranges need not nest. They stand on the row of a thread only.

    Raises:
        TypeError: ``msg`` is no text.
    """
    return _C.nvtx_range_start(_checked("range_start", msg))


def range_end(range_id: int) -> None:
    """End the range that :func:`range_start` has given this number. A range that has ended is left alone.

    Raises:
        TypeError: ``range_id`` is no int.
        ValueError: it is negative.
    """
    if not isinstance(range_id, int) or isinstance(range_id, bool):
        raise TypeError(f"range_end: range_id must be an int, got {type(range_id).__name__}")
    if range_id < 0:
        raise ValueError(f"range_end: range_id must be a number that range_start() returned, got {range_id}")
    if range_id < 1 << 64:
        _C.nvtx_range_end(range_id)


def mark(msg: str) -> None:
    """Note that this moment was reached: an annotation without duration.

    Raises:
        TypeError: ``msg`` is no text.
    """
    _C.nvtx_mark(_checked("mark", msg))


@contextmanager
def range(msg: str, *args: object, **kwargs: object) -> Iterator[None]:
    """Push a range around a block, or around each call of a function that it decorates.

    Arguments behind ``msg`` are put in by ``msg.format``.
    """
    range_push(_checked("range", msg).format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
