"""Compares how a name is called here with how torch.cuda's is, by introspection."""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from inspect import Parameter
from typing import Any

from tools.parity.names import Name, found

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)

# Differences that are meant: the name in torch.cuda's spelling, and why.
ACCEPTED: dict[str, str] = {
    "torch.cuda._sanitizer.Access": "made by the sanitizer: a tensor is told by its address, shape and"
    " element size from the tape, not by the names of an op's arguments",
    "torch.cuda._sanitizer.TensorInfo": "made by the sanitizer: a block of memory with all uses that a later"
    " one can race with, not the last ones of a tensor",
    **dict.fromkeys(
        ("torch.cuda.Event", "torch.cuda.streams.Event"),
        "`external` is missing: an event that a capture records orders that capture, and nothing outside it",
    ),
    **dict.fromkeys(
        ("torch.cuda.graph", "torch.cuda.graphs.graph"),
        "`enable_annotations` and `check_input_liveness` are missing: the functions of `_graph_annotations`"
        " can be called around a capture; whether inputs still live is not checked",
    ),
}


def _parameters(value: Any) -> list[Parameter] | None:
    """Returns what can be passed, or None where Python does not know."""
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return None
    return [parameter for parameter in parameters if parameter.name not in ("self", "cls")]


@cache
def _original(name: Name) -> Any:
    try:
        value: Any = importlib.import_module(name.module)
    except ImportError:
        return None
    for part in name.name.split("."):
        value = getattr(value, part, None)
    return value


def difference(name: Name) -> str | None:
    """Returns what would break a call written for torch.cuda, or None.

    Extra parameters with a default break nothing, nor does a parameter that became optional.
    """
    original = _original(name)
    if not callable(original) or name.kind == "typevar":
        return None
    wanted, ours = _parameters(original), _parameters(found(name))
    if wanted is None or ours is None:
        return None
    return _difference(wanted, ours)


def _difference(wanted: list[Parameter], ours: list[Parameter]) -> str | None:
    by_name = {parameter.name: parameter for parameter in ours}
    takes_any = {parameter.kind for parameter in ours}
    for parameter in wanted:
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            continue
        mine = by_name.pop(parameter.name, None)
        if mine is None:
            if Parameter.VAR_KEYWORD not in takes_any and Parameter.VAR_POSITIONAL not in takes_any:
                return f"parameter {parameter.name} is missing"
        elif parameter.default is not Parameter.empty and mine.default is Parameter.empty:
            return f"parameter {parameter.name} has no default"
    required = [p.name for p in by_name.values() if p.default is Parameter.empty and "VAR" not in p.kind.name]
    if required and not any(p.kind is Parameter.VAR_POSITIONAL for p in wanted):
        return f"parameter {required[0]} is required"
    return _order_difference(wanted, ours)


def _order_difference(wanted: list[Parameter], ours: list[Parameter]) -> str | None:
    if any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in ours):
        return None
    order = [parameter.name for parameter in ours if parameter.kind in _POSITIONAL]
    for position, parameter in enumerate(p for p in wanted if p.kind in _POSITIONAL):
        if order[position : position + 1] != [parameter.name]:
            return f"positional parameter {position + 1} is not {parameter.name}"
    return None
