"""What arguments must be: checks that public functions share."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from torch_loom.errors import PyBudaError


def check_count(where: str, name: str, value: Any, low: int = 1, zero: str = "") -> None:
    """Refuse what is no whole number of at least ``low``; ``zero`` says what 0 means.

    Raises:
        PyBudaError: another value.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or value < low:
        limit = f"0 ({zero}) or more" if zero else f"{low} or more"
        raise PyBudaError(f"{where}: {name} is {value!r}; it is a whole number, {limit}")


def check_number(name: str, value: Any, low: float = 0.0, high: float | None = None) -> None:
    """Refuse what is no finite number of at least ``low`` and, where that is given, below ``high``.

    Raises:
        PyBudaError: another value.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or value < low or (high is not None and value >= high):
        limit = "above" if high is None else f"below {high}"
        raise PyBudaError(f"{name} is {value!r}; it is a finite number, {low} or {limit}")


def check_name(what: str, name: Any) -> None:
    """Refuse what cannot name a file in a folder: files are written under names of devices and graphs.

    Raises:
        PyBudaError: no text, an empty one, a path.
    """
    is_name = isinstance(name, str) and name not in ("", ".", "..") and not {"/", "\\", "\0"} & set(name)
    if not is_name:
        raise PyBudaError(
            f"{what} is named {name!r}; its name is a text that can name a file: without /, \\ and NUL"
        )
