"""What arguments must be: a declared type is read as a check, and some checks by name."""

from __future__ import annotations

import collections.abc
import difflib
import enum
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar, get_args, get_origin

from torch_loom.config.keywords import names_near_keywords
from torch_loom.errors import PyBudaError

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class From(NamedTuple):
    """In an ``Annotated`` number: the least, and the largest."""

    low: float
    high: float = math.inf

    def __str__(self) -> str:
        return f"{self.low} or more" if self.high == math.inf else f"{self.low} to {self.high}"


class OneOf:
    """In an ``Annotated`` type: all values; texts are taken in any case."""

    def __init__(self, values: Iterable[Any]) -> None:
        self.values = tuple(values)

    def __str__(self) -> str:
        return f"one of {', '.join(str(value) or repr(value) for value in self.values)}"

    def read(self, value: Any) -> Any:
        """Return the value that is meant.

        Raises:
            ValueError: none of them.
        """
        for known in self.values:
            same = value.lower() == known.lower() if isinstance(value, str) else value == known
            if type(value) is type(known) and same:
                return known
        texts = [known for known in self.values if isinstance(known, str)]
        near = difflib.get_close_matches(value, texts, 1) if isinstance(value, str) else []
        raise ValueError(f"{self} (do you mean {near[0]}?)" if near else str(self))


Count = Annotated[int, From(1)]
Index = Annotated[int, From(0)]


def read(what: str, value: Any, declared: Any) -> Any:
    """Return a value as its declared type has it: tuples for lists that stand for them, names in their case.

    Args:
        declared: a type as of an annotation. An ``Annotated`` one may have :class:`From`, :class:`OneOf`,
            and a text that says it in words.

    Raises:
        PyBudaError: a value of another type or out of range; it names ``what``, the value and the type.
    """
    try:
        return _read(value, declared)
    except ValueError as error:
        raise PyBudaError(f"{what} is {value!r}; it is {error}") from None


def in_words(declared: Any) -> str:
    """Return what a declared type takes, in words."""
    origin, parts = get_origin(declared), get_args(declared)
    if origin is Annotated:
        kind, *limits = parts
        said = [limit for limit in limits if isinstance(limit, (str, OneOf))]
        return str(said[0]) if said else ", ".join([in_words(kind), *map(str, limits)])
    if origin in (typing.Union, types.UnionType):
        *first, last = (in_words(part) for part in parts)
        return f"{', '.join(first)} or {last}"
    if origin in _CONTAINERS:
        return _CONTAINERS[origin].format(*map(in_words, parts))
    if origin is tuple:
        return f"({', '.join(in_words(part) for part in parts)})"
    if isinstance(declared, type) and issubclass(declared, enum.Enum):
        return f"a {declared.__name__}: {', '.join(member.name for member in declared)}"
    name = getattr(origin or declared, "__name__", str(declared))
    return _WORDS.get(declared, "a function" if origin is collections.abc.Callable else f"a {name}")


_CONTAINERS = {list: "a list of which each is {0}", set: "a set of which each is {0}"}
_CONTAINERS |= {dict: "a dict from {0} to {1}"}
_WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    type(None): "None",
    Any: "anything",
}


def _read(value: Any, declared: Any) -> Any:
    origin, parts = get_origin(declared), get_args(declared)
    if origin in (typing.Union, types.UnionType):
        return _read_any(value, declared, parts)
    if origin is Annotated:
        return _read_annotated(value, declared, parts)
    if origin in (list, set, tuple, dict):
        return _read_container(value, declared, origin, parts)
    if declared is bool and isinstance(value, Integral) and value in (0, 1):
        return bool(value)
    _require(_is_a(value, origin or declared), declared)
    return value


def _read_any(value: Any, declared: Any, parts: tuple[Any, ...]) -> Any:
    said = in_words(declared)
    for part in parts:
        try:
            return _read(value, part)
        except ValueError as error:
            said = str(error) if "do you mean" in str(error) else said
    raise ValueError(said)


def _read_annotated(value: Any, declared: Any, parts: tuple[Any, ...]) -> Any:
    kind, *limits = parts
    for limit in limits:
        if isinstance(limit, OneOf):
            return limit.read(value)
    try:
        found = _read(value, kind)
    except ValueError:
        raise ValueError(in_words(declared)) from None
    _require(all(each.low <= found <= each.high for each in limits if isinstance(each, From)), declared)
    return found


def _read_container(value: Any, declared: Any, kind: type, parts: tuple[Any, ...]) -> Any:
    others: dict[type, Any] = {dict: collections.abc.Mapping, set: (list, tuple, set, frozenset)}
    given = others.get(kind, (list, tuple))
    _require(isinstance(value, given) and (kind is not tuple or len(value) == len(parts)), declared)
    try:
        if kind is dict:
            made: Any = {_read(key, parts[0]): _read(each, parts[1]) for key, each in value.items()}
        else:
            kinds = parts if kind is tuple else parts * len(value)
            made = kind(_read(each, part) for each, part in zip(value, kinds, strict=True))
    except ValueError:
        raise ValueError(in_words(declared)) from None
    # What the program has made stays its own.
    return value if isinstance(value, kind) and made == value else made


def _is_a(value: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    if kind is collections.abc.Callable:
        return callable(value)
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    return isinstance(value, kind)


def _require(holds: bool, declared: Any) -> None:
    if not holds:
        raise ValueError(in_words(declared))


def checks_arguments(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Read the arguments of a function by its annotations.

    Raises:
        PyBudaError: in each call of it with an argument of another type or out of range.
        TypeError: in each call with a keyword that it lacks; it has the nearest.
    """
    signature = inspect.signature(function)
    declared = functools.cache(lambda: typing.get_type_hints(function, include_extras=True))

    @functools.wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # which says it with the function's name
        for name, value in bound.arguments.items():
            bound.arguments[name] = read(f"{function.__name__}: {name}", value, declared()[name])
        return function(*bound.args, **bound.kwargs)

    return names_near_keywords(call)


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
