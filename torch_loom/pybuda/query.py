"""Predicates that choose ops: by name, by layer, by type; combined with ``&``, ``|`` and ``~``."""

from __future__ import annotations

import re
from collections.abc import Callable


class NodePredicateBuilder:
    """A predicate over an op's name and type."""

    def __init__(self, text: str, matches: Callable[[str, str], bool]) -> None:
        self._text, self._matches = text, matches

    def __call__(self, name: str, op_type: str = "") -> bool:
        """Whether an op of this name and type is chosen."""
        return self._matches(name, op_type)

    def __and__(self, other: NodePredicateBuilder) -> NodePredicateBuilder:
        return NodePredicateBuilder(f"({self} & {other})", lambda n, t: self(n, t) and other(n, t))

    def __or__(self, other: NodePredicateBuilder) -> NodePredicateBuilder:
        return NodePredicateBuilder(f"({self} | {other})", lambda n, t: self(n, t) or other(n, t))

    def __invert__(self) -> NodePredicateBuilder:
        return NodePredicateBuilder(f"~{self}", lambda n, t: not self(n, t))

    def negate(self) -> NodePredicateBuilder:
        """Return the opposite predicate, as ``~``."""
        return ~self

    def __repr__(self) -> str:
        return self._text


def name_regex(regex: str) -> NodePredicateBuilder:
    """Choose ops whose whole name matches a regular expression."""
    compiled = re.compile(regex)
    return NodePredicateBuilder(
        f"name_regex({regex!r})", lambda name, _: compiled.fullmatch(name) is not None
    )


def layer_regex(regex: str) -> NodePredicateBuilder:
    """Choose ops with a layer, a part of the name between dots, that matches a regular expression."""
    compiled = re.compile(regex)
    return NodePredicateBuilder(
        f"layer_regex({regex!r})",
        lambda name, _: any(compiled.fullmatch(part) is not None for part in name.split(".")),
    )


def op_type(kind: str) -> NodePredicateBuilder:
    """Choose ops of a type, such as ``matmul``."""
    return NodePredicateBuilder(f"op_type({kind!r})", lambda _, found: found == kind)
