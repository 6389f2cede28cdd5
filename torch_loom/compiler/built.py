"""Who is told of the programs that the backend of ``torch.compile`` builds: listeners of a thread or all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import fx


class Built(NamedTuple):
    """A program that the backend has built.

    Attributes:
        name: Dynamo's name of the compilation, ``"0/0"``; empty where it has none.
        graph: with its inputs and results, after the passes.
        run: takes the inputs and returns the results, as the graph has them.
    """

    name: str
    graph: fx.GraphModule
    run: Callable[[Sequence[Any]], Sequence[Any]]


Listener = Callable[[Built], None]

_of_thread = threading.local()
_of_all: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell ``listener`` of what this thread builds within a ``with`` block; the inner and the outer ones."""
    own = _own()
    own.append(listener)
    try:
        yield
    finally:
        own.remove(listener)


def listen_everywhere(listener: Listener) -> None:
    """Tell ``listener`` of what any thread builds, until :func:`leave`."""
    _of_all.append(listener)


def leave(listener: Listener) -> None:
    """End what :func:`listen_everywhere` began."""
    _of_all.remove(listener)


def is_heard() -> bool:
    """Return whether anybody is told of what this thread builds."""
    return bool(_of_all or _own())


def tell(program: Built) -> None:
    """Tell all of them, the outermost first."""
    for listener in (*_of_all, *_own()):
        listener(program)


def _own() -> list[Listener]:
    if not hasattr(_of_thread, "listeners"):
        _of_thread.listeners = []
    found: list[Listener] = _of_thread.listeners
    return found
