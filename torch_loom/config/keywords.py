"""Calls with a keyword that a function lacks."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def names_near_keywords(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Let calls of a function with a keyword that it lacks say which is nearest.

    Raises:
        TypeError: in such a call.
    """
    known = inspect.signature(function).parameters.keys()

    @functools.wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        for name in kwargs.keys() - known:
            if near := difflib.get_close_matches(name, known, 1):
                called = function.__qualname__.removesuffix(".__init__")
                raise TypeError(f"{called}() has no argument {name!r}: do you mean {near[0]!r}?")
        return function(*args, **kwargs)

    return call
