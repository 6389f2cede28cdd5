"""The table of ONNX operators: which function computes each, from which version of its domain on.

A function's positional parameters are the operator's inputs, its keyword-only ones the attributes. The
annotation of a parameter says what the function takes:

- ``Tensor``, ``Tensor | None``, ``*Tensor``: tensors as they are;
- ``Number``: a tensor, or a Python number where the model has a constant without dimensions;
- ``Int``, ``Ints``, ``Float``, ``Floats``: Python numbers, also where newer versions of an operator have an
  input in the place of an attribute: an attribute of the parameter's name is taken just as well;
- ``State``: a tensor that training does not change by gradients, as the running mean of a normalisation.

Keyword-only parameters that are no attributes: ``opset`` is the version of the domain, ``num_outputs`` how
many outputs the node names, ``like`` a tensor on the device on which new tensors are made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch

__all__ = ["RULES", "Float", "Floats", "Int", "Ints", "Number", "Parameter", "Rule", "State", "find", "op"]

Tensor: TypeAlias = torch.Tensor
Number: TypeAlias = Any  # a tensor, or a Python number
Int: TypeAlias = int
Ints: TypeAlias = Sequence[int]
Float: TypeAlias = float
Floats: TypeAlias = Sequence[float]
State: TypeAlias = torch.Tensor

SPECIAL = ("opset", "num_outputs", "like")
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function: an input, or an attribute."""

    name: str
    kind: str
    is_variadic: bool = False


@dataclass(frozen=True)
class Rule:
    """How an operator is computed.

    Attributes:
        since: the first version of the operator's domain that it holds for.
        inputs, attributes, special: the parameters of ``function``.
        has_many: whether it returns a tuple or a list, one entry an output.
        is_pure: whether equal arguments give equal results.
    """

    function: Callable[..., Any]
    since: int
    inputs: tuple[Parameter, ...]
    attributes: frozenset[str]
    special: frozenset[str]
    has_many: bool
    is_pure: bool = True


RULES: dict[tuple[str, str], list[Rule]] = {}
"""Rules by domain and operator, the newest first."""


def op(*names: str, since: int = 1, domain: str = "", pure: bool = True) -> Callable[[Function], Function]:
    """Register a function of this module's conventions for operators; it replaces an earlier one.

    Args:
        names: of operators.
        since: the first version of the domain that it holds for.
        domain: ``""`` is ONNX's own.
        pure: whether equal arguments give equal results, so that constants may be computed once.

    Example:
        >>> import torch
        >>> from torch_loom.compiler.onnx import op
        >>> @op("Twice", domain="com.example")
        ... def twice(x: torch.Tensor, *, bias: float = 0.0) -> torch.Tensor:
        ...     return 2 * x + bias
    """

    def register(function: Function) -> Function:
        rule = _rule(function, since, pure)
        for name in names:
            add(name, rule, domain)
        return function

    return register


def add(name: str, rule: Rule, domain: str = "") -> None:
    """Put a rule into the table."""
    kept = [one for one in RULES.get((domain, name), []) if one.since != rule.since]
    RULES[domain, name] = sorted([*kept, rule], key=lambda one: -one.since)


def tensors(name: str, function: Callable[..., Any], num_inputs: int = 1) -> None:
    """Register a function that takes tensors, or Python numbers in the place of all but the first."""
    kinds = ["Tensor", *["Number"] * (num_inputs - 1)]
    inputs = tuple(Parameter(f"x{number}", kind) for number, kind in enumerate(kinds))
    add(name, Rule(function, 1, inputs, frozenset(), frozenset(), has_many=False))


def find(domain: str, name: str, version: int) -> Rule | None:
    """Return the rule of an operator at a version of its domain; None: there is none."""
    return next((one for one in RULES.get((domain, name), []) if one.since <= version), None)


def _rule(function: Callable[..., Any], since: int, pure: bool) -> Rule:
    signature = inspect.signature(function)
    inputs: list[Parameter] = []
    attributes: set[str] = set()
    special: set[str] = set()
    for name, parameter in signature.parameters.items():
        kind = str(parameter.annotation).partition(" ")[0].rpartition(".")[2]
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            (special if name in SPECIAL else attributes).add(name)
        else:
            variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
            inputs.append(Parameter(name, kind, variadic))
    many = str(signature.return_annotation).startswith(("tuple", "list"))
    return Rule(function, since, tuple(inputs), frozenset(attributes), frozenset(special), many, pure)
