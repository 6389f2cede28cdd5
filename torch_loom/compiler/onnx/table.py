"""The table of ONNX operators: which function computes each, from which version of its domain on.

A function's positional parameters are the operator's inputs, its keyword-only ones the attributes. The
annotation of an input says what the function takes:

- ``Tensor``, ``Tensor | None``, ``*Tensor``, ``Any``: values as they are;
- ``Number``: a tensor, or a Python number where the model has a constant without dimensions;
- ``Int``, ``Ints``, ``Float``, ``Floats``: Python numbers, also where newer versions of an operator have an
  input in the place of an attribute: an attribute of the parameter's name is taken just as well; ``int``,
  ``float`` and sequences of them mean the same;
- ``State``: a tensor that training does not change by gradients, as the running mean of a normalisation.

Attributes that operators share may come as ``**attributes: Unpack[T]``; the ``TypedDict`` T has their names.

Keyword-only parameters that are no attributes: ``opset`` is the version of the domain, ``num_outputs`` how
many outputs the node names, ``like`` a tensor on the device on which new tensors are made, ``numbers_dtype``
the dtype that the model gives inputs that come as Python numbers (None: no ``Number`` is one).
"""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

import torch
import typing_extensions

from torch_loom.errors import OnnxError


class Kind(enum.Enum):
    """What a function takes as an input."""

    TENSOR = "a value as it is"
    NUMBER = "a tensor or a number"
    STATE = "a tensor that training does not change"
    INT = "an integer"
    INTS = "integers"
    FLOAT = "a float"
    FLOATS = "floats"

    @property
    def is_tensor(self) -> bool:
        """Whether a tensor will do."""
        return self in (Kind.TENSOR, Kind.NUMBER, Kind.STATE)

    @property
    def is_list(self) -> bool:
        """Whether it is several Python numbers."""
        return self in (Kind.INTS, Kind.FLOATS)


Tensor: TypeAlias = torch.Tensor
Number: TypeAlias = Annotated[Any, Kind.NUMBER]
Int: TypeAlias = Annotated[int, Kind.INT]
Ints: TypeAlias = Annotated[Sequence[int], Kind.INTS]
Float: TypeAlias = Annotated[float, Kind.FLOAT]
Floats: TypeAlias = Annotated[Sequence[float], Kind.FLOATS]
State: TypeAlias = Annotated[torch.Tensor, Kind.STATE]

SPECIAL = ("opset", "num_outputs", "like", "numbers_dtype")
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function: an input, or an attribute."""

    name: str
    kind: Kind
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
    """Register a function of this module's conventions for operators; it replaces an earlier function.

    Args:
        names: of operators.
        since: the first version of the domain that it holds for.
        domain: ``""`` is ONNX's own.
        pure: whether equal arguments give equal results, so that constants may be computed once.

    Raises:
        OnnxError: an input's annotation is none of those that say what the function takes.

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
    kept = [each for each in RULES.get((domain, name), []) if each.since != rule.since]
    RULES[domain, name] = sorted([*kept, rule], key=lambda each: -each.since)


def tensors(name: str, function: Callable[..., Any], num_inputs: int = 1) -> None:
    """Register a function that takes tensors, or Python numbers in the place of all but the first."""
    kinds = [Kind.TENSOR, *[Kind.NUMBER] * (num_inputs - 1)]
    inputs = tuple(Parameter(f"x{number}", kind) for number, kind in enumerate(kinds))
    add(name, Rule(function, 1, inputs, frozenset(), frozenset(), has_many=False))


def find(domain: str, name: str, version: int) -> Rule | None:
    """Return the rule of an operator at a version of its domain; None: there is none."""
    return next((each for each in RULES.get((domain, name), []) if each.since <= version), None)


def _rule(function: Callable[..., Any], since: int, pure: bool) -> Rule:
    signature = inspect.signature(function)
    what = f"{getattr(function, '__name__', 'the function')} cannot be registered"
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise OnnxError(f"{what}: its annotations cannot be evaluated: {error}") from error
    inputs: list[Parameter] = []
    attributes: set[str] = set()
    special: set[str] = set()
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            (special if name in SPECIAL else attributes).add(name)
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD and typing_extensions.get_origin(
            hints.get(name)
        ) is (typing_extensions.Unpack):
            attributes.update(typing_extensions.get_args(hints[name])[0].__annotations__)
        else:
            kind = _kind(hints.get(name))
            if kind is None or parameter.kind is inspect.Parameter.VAR_KEYWORD:
                raise OnnxError(
                    f"{what}: annotate its parameter {name!r}, an input of the operator, with torch.Tensor, "
                    "or with Number, Int, Ints, Float, Floats or State of torch_loom.compiler.onnx"
                )
            inputs.append(Parameter(name, kind, parameter.kind is inspect.Parameter.VAR_POSITIONAL))
    result = hints.get("return")
    many = (typing.get_origin(result) or result) in (tuple, list)
    return Rule(function, since, tuple(inputs), frozenset(attributes), frozenset(special), many, pure)


def _kind(annotation: Any) -> Kind | None:
    """Return what an annotation says that a function takes; None: it says nothing of the kind."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        found = {_kind(arg) for arg in typing.get_args(annotation) if arg is not type(None)}
        return found.pop() if len(found) == 1 else None
    for marker in getattr(annotation, "__metadata__", ()):
        if isinstance(marker, Kind):
            return marker
    if annotation is Any or annotation is torch.Tensor:
        return Kind.TENSOR
    of: Any = next(iter(typing.get_args(annotation)), None)
    if typing.get_origin(annotation) in (list, tuple, Sequence):
        return {int: Kind.INTS, float: Kind.FLOATS}.get(of)
    if annotation is int:
        return Kind.INT
    return Kind.FLOAT if annotation is float else None
