"""What a repository of operators says of each: its operands and parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from torch_loom.errors import PyBudaError

TensorShape = tuple[int, ...]


@dataclass
class OperatorParamNumber:
    """A number among an operator's parameters, and its range."""

    name: str
    type: type[int] | type[float]
    min_value: float | None
    max_value: float | None


OperatorParam = OperatorParamNumber


@dataclass
class OperandNumRange:
    """How many operands an operator takes."""

    operands_min: int
    operands_max: int


@dataclass
class OperatorDefinition:
    """An operator: its name, the name to call it by, how many operands it takes, and its parameters.

    ``instantiate``: it is a layer, which is made with ``constructor_params`` first.
    """

    name: str
    full_name: str
    input_num_range: Any
    instantiate: bool = False
    constructor_params: list[OperatorParam] = field(default_factory=list)
    forward_code: Callable[[], str] | None = None
    forward_params: list[OperatorParam] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)
    calc_input_shapes: Callable[[ShapeCalculationContext, Random], list[TensorShape]] | None = None

    def __post_init__(self) -> None:
        given = self.input_num_range
        if isinstance(given, int):
            given = (given, given)
        if not isinstance(given, OperandNumRange):
            self.input_num_range = OperandNumRange(*given)

    @property
    def is_operator(self) -> bool:
        """Whether it is called at once."""
        return not self.instantiate

    @property
    def is_layer(self) -> bool:
        """Whether it is made first."""
        return self.instantiate


class ShapeCalculationContext:
    """What shapes of inputs are worked out from; a generator of graphs subclasses it."""

    operator: OperatorDefinition
    input_num: int
    constructor_kwargs: dict[str, object]
    forward_kwargs: dict[str, object]
    output_shape: TensorShape
    rng_shape: Random


class OperatorRepository:
    """Operators, by name."""

    def __init__(self, operators: Sequence[OperatorDefinition]) -> None:
        self.operators = list(operators)

    def get_by_name(self, name: str) -> OperatorDefinition:
        """Return an operator.

        Raises:
            PyBudaError: there is none of that name.
        """
        for operator in self.operators:
            if operator.name == name:
                return operator
        raise PyBudaError(
            f"no operator {name!r}: there are {', '.join(each.name for each in self.operators)}"
        )
