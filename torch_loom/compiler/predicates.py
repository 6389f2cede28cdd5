"""Which ops a break or an override is for: by name, by pattern, by type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch_loom.errors import CompilerOptionError, UnknownOpError


@dataclass(frozen=True)
class Named:
    """What a predicate is asked about.

    Attributes:
        name: the op's.
        kind: the name of its kind, as ``aten::relu``.
        module: the path of its module.
        label: name and type that the program gave it; empty where it gave none.
    """

    name: str
    kind: str
    module: str
    label: tuple[str, str] = ("", "")


class Predicate:
    """A question about an op; combined with ``&``, ``|`` and ``~`` (or :meth:`negate`).

    Args:
        holds: answers it.
        text: what the predicate is in messages.
        is_whole: whether the text says all of it, so that equal texts are equal questions.
    """

    def __init__(self, holds: Callable[[Named], bool], text: str, *, is_whole: bool = False) -> None:
        self._holds = holds
        self._text = text
        self.is_whole = is_whole

    def __call__(self, op: Named) -> bool:
        return self._holds(op)

    def __and__(self, other: Predicate) -> Predicate:
        return Predicate(
            lambda op: self(op) and other(op),
            f"({self} & {other})",
            is_whole=self.is_whole and other.is_whole,
        )

    def __or__(self, other: Predicate) -> Predicate:
        return Predicate(
            lambda op: self(op) or other(op), f"({self} | {other})", is_whole=self.is_whole and other.is_whole
        )

    def __invert__(self) -> Predicate:
        return Predicate(lambda op: not self(op), f"~{self}", is_whole=self.is_whole)

    negate = __invert__

    def __repr__(self) -> str:
        return self._text


Selector = str | Predicate | Sequence[str | Predicate]


def _pattern(regex: str) -> re.Pattern[str]:
    try:
        return re.compile(regex)
    except (re.error, TypeError) as error:
        raise CompilerOptionError(f"{regex!r} is no regular expression: {error}") from None


def name_regex(regex: str) -> Predicate:
    """Ops whose whole name matches."""
    pattern = _pattern(regex)
    return Predicate(
        lambda op: pattern.fullmatch(op.name) is not None, f"name_regex({regex!r})", is_whole=True
    )


def layer_regex(regex: str) -> Predicate:
    """Ops of modules whose whole path matches."""
    pattern = _pattern(regex)
    return Predicate(
        lambda op: pattern.fullmatch(op.module) is not None, f"layer_regex({regex!r})", is_whole=True
    )


def op_type(name: str) -> Predicate:
    """Ops of a type: ``"matmul"``, or as PyTorch calls it, ``"aten::mm"``."""
    return Predicate(
        lambda op: name in (op.kind, op.kind.partition("::")[2].partition(".")[0]),
        f"op_type({name!r})",
        is_whole=True,
    )


def checked(selector: Selector) -> tuple[str | Predicate, ...]:
    """Return the parts of a name, a predicate, or a list of both.

    Raises:
        CompilerOptionError: it is something else.
    """
    parts: Iterable[object] = [selector] if isinstance(selector, str | Predicate) else selector
    try:
        found = tuple(parts)
    except TypeError:
        found = (selector,)
    for each in found:
        if not isinstance(each, str | Predicate):
            raise CompilerOptionError(f"{each!r} is no op's name and no predicate")
    return found  # type: ignore[return-value]


def matching(selector: Selector, ops: Sequence[Named], what: str) -> list[str]:
    """Return the names of the ops that a selector is for.

    Raises:
        UnknownOpError: a name is none of them, or a predicate holds for none.
    """
    found: list[str] = []
    names = {op.name for op in ops}
    for each in checked(selector):
        if isinstance(each, str):
            if each not in names:
                near = ", ".join(sorted(names, key=lambda name: _distance(name, each))[:5])
                raise UnknownOpError(f"{what}: there is no op {each!r}. Ops of that name or near it: {near}")
            found.append(each)
        else:
            own = [op.name for op in ops if each(op)]
            if not own:
                raise UnknownOpError(f"{what}: {each} holds for none of the {len(ops)} ops")
            found += own
    return found


def _distance(name: str, other: str) -> tuple[int, str]:
    import difflib

    return -int(1000 * difflib.SequenceMatcher(None, name, other).ratio()), name
