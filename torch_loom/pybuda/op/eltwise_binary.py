"""Elementwise ops of two operands. The second is cast to the first's dtype; sizes of one are broadcast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.op.apply import apply
from torch_loom.pybuda.tensor import Tensor, TensorBase

Torch = Any  # a torch.Tensor; several of its methods have no types


def _binary(
    op_type: str, name: str, a: Any, b: Any, compute: Callable[[Torch, Torch], Torch], **attributes: Any
) -> Tensor:
    def run(x: Torch, y: Torch) -> Torch:
        if x.dtype is torch.bool and y.dtype is not torch.bool:
            x = x.to(y.dtype)
        return compute(x, y.to(x.dtype))

    made: Tensor = apply(op_type, name, (a, b), run, attributes)
    return made


def _comparison(op_type: str, name: str, a: Any, b: Any, compare: Callable[[Torch, Torch], Torch]) -> Tensor:
    return _binary(op_type, name, a, b, lambda x, y: compare(x, y).to(x.dtype))


def Add(name: str, operandA: Any, operandB: Any) -> Tensor:
    """Elementwise sum."""
    return _binary("add", name, operandA, operandB, torch.add)


def Subtract(name: str, operandA: Any, operandB: Any) -> Tensor:
    """Elementwise difference."""
    return _binary("subtract", name, operandA, operandB, torch.subtract)


def Multiply(name: str, operandA: Any, operandB: Any) -> Tensor:
    """Elementwise product."""
    return _binary("multiply", name, operandA, operandB, torch.multiply)


def Divide(name: str, operandA: Any, operandB: Any) -> Tensor:
    """Elementwise quotient."""
    return _binary("divide", name, operandA, operandB, lambda x, y: torch.divide(x, y).to(x.dtype))


def Max(name: str, operandA: Any, operandB: Any) -> Tensor:
    """Elementwise maximum; where both are equal each gets half of the gradient."""
    return _binary("maximum", name, operandA, operandB, torch.maximum)


def Min(name: str, operandA: Any, operandB: Any) -> Tensor:
    """Elementwise minimum; where both are equal each gets half of the gradient."""
    return _binary("minimum", name, operandA, operandB, torch.minimum)


def Power(name: str, operandA: Any, operandB: Any) -> Tensor:
    """Elementwise power: the first operand to the second."""
    return _binary("power", name, operandA, operandB, torch.pow)


def Heaviside(name: str, operandA: Any, operandB: Any) -> Tensor:
    """The step function of the first operand: 0 below zero, 1 above, the second operand at zero."""
    return _binary(
        "heaviside",
        name,
        operandA,
        operandB,
        # By parts, since torch.heaviside has no gradient, which the second operand has at zero.
        lambda x, y: torch.where(x == 0, y, (x > 0).to(x.dtype)),
    )


def BinaryStack(name: str, operandA: Any, operandB: Any, dim: int) -> Tensor:
    """Interleave two tensors of one shape along a dimension: a0, b0, a1, b1, … doubles it."""

    def run(x: Torch, y: Torch) -> Torch:
        if x.shape != y.shape:
            raise PyBudaError(f"operands need one shape, not {tuple(x.shape)} and {tuple(y.shape)}")
        place = dim % x.dim()
        return torch.stack((x, y), place + 1).flatten(place, place + 1)

    return _binary("binary_stack", name, operandA, operandB, run, dim=dim)


def Equal(name: str, operandA: Any, operandB: Any) -> Tensor:
    """1 where equal, else 0."""
    return _comparison("equal", name, operandA, operandB, torch.eq)


def NotEqual(name: str, operandA: Any, operandB: Any) -> Tensor:
    """1 where not equal, else 0."""
    return _comparison("not_equal", name, operandA, operandB, torch.ne)


def Greater(name: str, operandA: Any, operandB: Any) -> Tensor:
    """1 where the first is greater, else 0."""
    return _comparison("greater", name, operandA, operandB, torch.gt)


def Less(name: str, operandA: Any, operandB: Any) -> Tensor:
    """1 where the first is less, else 0."""
    return _comparison("less", name, operandA, operandB, torch.lt)


def GreaterEqual(name: str, operandA: Any, operandB: Any) -> Tensor:
    """1 where the first is greater or equal, else 0."""
    return _comparison("greater_equal", name, operandA, operandB, torch.ge)


def LessEqual(name: str, operandA: Any, operandB: Any) -> Tensor:
    """1 where the first is less or equal, else 0."""
    return _comparison("less_equal", name, operandA, operandB, torch.le)


def LogicalAnd(name: str, operandA: Any, operandB: Any) -> Tensor:
    """1 where both are not zero, else 0."""
    return _comparison("logical_and", name, operandA, operandB, torch.logical_and)


TensorBase.operators.update(Add=Add, Subtract=Subtract, Multiply=Multiply)
