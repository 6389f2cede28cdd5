"""What the values of a chip description must look like. Each check says in words what it allows."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from torch_loom.config.parsers import MAX_MEMORY_BYTES, MIN_MEMORY_BYTES, parse_size

MAX_TEXT_CHARS = 400
MAX_OPS = 2000

# PyTorch's names; those that a description may use.
DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "complex32", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"),
)
# Formats beside the dtypes: what Tensix calls Bfp8_b and so on, and the rounding of float32 products.
FORMATS = ("bfp8", "bfp8_b", "bfp4", "bfp4_b", "bfp2", "bfp2_b", "lf8", "tf32")
AMP_DTYPES = ("float16", "bfloat16")


class BadValueError(ValueError):
    """A value is not allowed: ``key`` below the description's, ``value``, and ``allowed`` in words."""

    def __init__(self, value: object, allowed: str, key: str = "") -> None:
        super().__init__(allowed)
        self.value = value
        self.allowed = allowed
        self.key = key


class Check(NamedTuple):
    """Takes a value of the file and returns it as the chip keeps it; ``allowed`` says what it takes."""

    allowed: str
    apply: Callable[[Any], object]

    def __call__(self, value: object) -> object:
        """Return the checked value.

        Raises:
            BadValueError: it is of another type or out of range.
        """
        try:
            return self.apply(value)
        except BadValueError:
            raise
        except (TypeError, ValueError, OverflowError):
            raise BadValueError(value, self.allowed) from None


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def whole(low: int, high: int) -> Check:
    """Return the check for a whole number."""

    def apply(value: Any) -> int:
        _require(_is_whole(value) and low <= value <= high)
        return int(value)

    return Check(f"a whole number, {low} to {high}", apply)


def number(unit: str, high: float, low: float = 0.0) -> Check:
    """Return the check for a number above ``low``, at most ``high``."""

    def apply(value: Any) -> float:
        _require(isinstance(value, (int, float)) and not isinstance(value, bool))
        _require(math.isfinite(value) and low < value <= high)
        return float(value)

    return Check(f"a number of {unit}, above {low:g}, to {high:g}", apply)


def share() -> Check:
    """Return the check for a share above 0, at most 1."""

    def apply(value: Any) -> float:
        _require(isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1)
        return float(value)

    return Check("a share, above 0, to 1", apply)


def _size(value: object) -> int:
    if _is_whole(value):
        return int(value)  # type: ignore[call-overload, no-any-return]
    if isinstance(value, str) and len(value) <= MAX_TEXT_CHARS:
        with contextlib.suppress(ValueError):
            return parse_size(value)
    return -1


def memory() -> Check:
    """Return the check for the size of a device's memory."""

    def apply(value: Any) -> int:
        _require(MIN_MEMORY_BYTES <= _size(value) <= MAX_MEMORY_BYTES)
        return _size(value)

    return Check("2MiB to 16TiB, as a whole number of bytes or text with a unit ('16GiB', '16GB')", apply)


def size() -> Check:
    """Return the check for the size of something on the chip."""

    def apply(value: Any) -> int:
        _require(1 <= _size(value) <= 1 << 40)
        return _size(value)

    return Check("1B to 1TiB, as a whole number of bytes or text with a unit ('48KiB')", apply)


def text() -> Check:
    """Return the check for a line of text."""

    def apply(value: Any) -> str:
        _require(isinstance(value, str) and 1 <= len(value) <= MAX_TEXT_CHARS and value.isprintable())
        return str(value)

    return Check(f"text of one line, 1 to {MAX_TEXT_CHARS} characters", apply)


def name() -> Check:
    """Return the check for a short name."""

    def apply(value: Any) -> str:
        _require(isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", value) is not None)
        return str(value)

    return Check("1 to 64 letters, digits, '_' and '-'", apply)


def choice(*allowed: str) -> Check:
    """Return the check for one of a few words."""

    def apply(value: Any) -> str:
        _require(isinstance(value, str) and value in allowed)
        return str(value)

    return Check(", ".join(repr(each) for each in allowed), apply)


def flag() -> Check:
    """Return the check for true or false."""

    def apply(value: Any) -> bool:
        _require(isinstance(value, bool))
        return bool(value)

    return Check("true, false", apply)


def names_of(allowed: tuple[str, ...]) -> Check:
    """Return the check for a list of some of the allowed words."""

    def apply(value: Any) -> tuple[str, ...]:
        _require(isinstance(value, list) and all(item in allowed for item in value))
        _require(len(set(value)) == len(value))
        return tuple(value)

    return Check(f"a list, without repetition, of {', '.join(allowed)}", apply)


def numbers(low: int, high: int) -> Check:
    """Return the check for a list of different whole numbers."""

    def apply(value: Any) -> tuple[int, ...]:
        _require(isinstance(value, list) and all(_is_whole(item) and low <= item <= high for item in value))
        _require(len(set(value)) == len(value))
        return tuple(value)

    return Check(f"a list, without repetition, of whole numbers, {low} to {high}", apply)


def amounts(low: float, high: float) -> Check:
    """Return the check for a list of numbers."""

    def apply(value: Any) -> tuple[float, ...]:
        _require(isinstance(value, list))
        for item in value:
            _require(isinstance(item, (int, float)) and not isinstance(item, bool) and low <= item <= high)
        return tuple(float(item) for item in value)

    return Check(f"a list of numbers, {low:g} to {high:g}", apply)


def ops() -> Check:
    """Return the check for a list of PyTorch's ops; None stands for all."""
    words = (
        "'all', or a list, without repetition, of names of PyTorch's ops without 'aten::' "
        f"('add', 'max.default'), at most {MAX_OPS}"
    )

    def apply(value: Any) -> tuple[str, ...] | None:
        if value == "all":
            return None
        _require(isinstance(value, list) and len(value) <= MAX_OPS)
        for item in value:
            if not isinstance(item, str) or not re.fullmatch(r"\w{1,100}(\.\w{1,100})?", item, re.ASCII):
                raise BadValueError(item, words)
        _require(len(set(value)) == len(value))
        return tuple(value)

    return Check(words, apply)


def table(keys: tuple[str, ...], inner: Callable[[str], Check]) -> Check:
    """Return the check for a table with some of the keys, each with its own check."""
    words = f"a table, keys {', '.join(keys)}"

    def apply(value: Any) -> Mapping[str, object]:
        _require(isinstance(value, dict))
        found = {}
        for key, item in value.items():
            if key not in keys:
                raise BadValueError(key, ", ".join(keys), "unknown key")
            try:
                found[key] = inner(key)(item)
            except BadValueError as error:
                raise BadValueError(error.value, error.allowed, _joined(key, error.key)) from None
        return MappingProxyType(found)

    return Check(words, apply)


def _joined(outer: str, key: str) -> str:
    """Return where below a table a value stands; an unknown key is named as such at the end."""
    return f"{outer}.{key}" if key else outer
