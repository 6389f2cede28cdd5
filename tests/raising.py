"""For programs of tests: what must raise, without pytest."""

from __future__ import annotations

from collections.abc import Callable


def raises(kind: str, text: str, body: Callable[[], object]) -> None:
    """Call `body`, which must raise an error of the class of this name, with this text in its message."""
    try:
        body()
    except Exception as error:
        if type(error).__name__ != kind or text not in str(error):
            raise AssertionError(repr(error)) from error
    else:
        raise AssertionError(f"{kind} was not raised")
