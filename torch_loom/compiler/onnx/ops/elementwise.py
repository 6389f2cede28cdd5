"""Operators that compute each element from those at the same place."""

from __future__ import annotations

import functools
import math
import operator

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.compiler.onnx.table import Float, Number, op, tensors

UNARY = {
    **{name: getattr(torch, name.lower()) for name in ("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan")},
    **{name: getattr(torch, name.lower()) for name in ("Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp")},
    **{name: getattr(torch, name.lower()) for name in ("Floor", "IsNaN", "Log", "Neg", "Reciprocal")},
    **{name: getattr(torch, name.lower()) for name in ("Round", "Sigmoid", "Sign", "Sin", "Sinh", "Sqrt")},
    "Tan": torch.tan,
    "Tanh": torch.tanh,
    "Not": torch.logical_not,
    "BitwiseNot": torch.bitwise_not,
    "Relu": functional.relu,
    "Softplus": functional.softplus,
    "Softsign": functional.softsign,
    "HardSwish": functional.hardswish,
    "Mish": functional.mish,
}
BINARY = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Equal": operator.eq,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "And": operator.and_,
    "Or": operator.or_,
    "Xor": operator.xor,
    "BitwiseAnd": operator.and_,
    "BitwiseOr": operator.or_,
    "BitwiseXor": operator.xor,
}
for _name, _function in UNARY.items():
    tensors(_name, _function)
for _name, _function in BINARY.items():
    tensors(_name, _function, 2)


@op("Identity")
def identity(x: Tensor) -> Tensor:
    """Return it."""
    return x


@op("Div")
def div(x: Number, y: Number, *, numbers_dtype: torch.dtype | None = None) -> Tensor:
    """Divide; integers towards zero."""
    if not isinstance(x, Tensor):
        x = torch.full((), x, dtype=numbers_dtype, device=y.device if isinstance(y, Tensor) else None)
    if (isinstance(x, Tensor) and x.is_floating_point()) or (isinstance(y, Tensor) and y.is_floating_point()):
        return x / y  # type: ignore[no-any-return]
    # Of the least number the quotient by -1 is no number of the dtype, and ends the process.
    if isinstance(y, Tensor) and y.dtype.is_signed:
        return torch.where(y == -1, -x, torch.div(x, torch.where(y == -1, 1, y), rounding_mode="trunc"))
    is_negated = not isinstance(y, Tensor) and y == -1
    return -x if is_negated else torch.div(x, y, rounding_mode="trunc")


@op("Mod")
def mod(x: Tensor, y: Tensor, *, fmod: int = 0) -> Tensor:
    """Remainder, with the sign of the divisor, or of the dividend where ``fmod``."""
    return torch.fmod(x, y) if fmod else torch.remainder(x, y)


@op("Pow")
def power(x: Tensor, y: Number) -> Tensor:
    """Power, in the dtype of the base."""
    return torch.pow(x, y).to(x.dtype)


@op("BitShift")
def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    """Shift unsigned integers."""
    if x.dtype in (torch.uint16, torch.uint32, torch.uint64):  # for which PyTorch has no shifts
        wide = torch.int64
        a, b = x.to(wide), y.to(wide)
        if direction == "LEFT":
            return torch.bitwise_left_shift(a, b).to(x.dtype)
        # The sign's copies are masked: an int64 shifts in one bits from the left.
        shifted = torch.bitwise_right_shift(a, b)
        if x.dtype is torch.uint64:
            shifted = torch.where(b > 0, shifted & ((1 << (64 - b.clamp(min=1))) - 1), shifted)
        return shifted.to(x.dtype)
    shift = torch.bitwise_left_shift if direction == "LEFT" else torch.bitwise_right_shift
    return shift(x, y)


@op("Sum")
def total(*values: Tensor) -> Tensor:
    """Sum of all."""
    return functools.reduce(operator.add, values)


@op("Mean")
def mean_of(*values: Tensor) -> Tensor:
    """Mean of all."""
    return functools.reduce(operator.add, values) / len(values)


@op("Max")
def maximum(*values: Tensor) -> Tensor:
    """Largest of all."""
    return functools.reduce(torch.maximum, values)


@op("Min")
def minimum(*values: Tensor) -> Tensor:
    """Smallest of all."""
    return functools.reduce(torch.minimum, values)


@op("Where")
def where(condition: Tensor, x: Number, y: Number, *, numbers_dtype: torch.dtype | None = None) -> Tensor:
    """Choose by a condition."""
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        # Of two Python numbers PyTorch makes its default dtype.
        x = torch.full((), x, dtype=numbers_dtype, device=condition.device)
    return torch.where(condition, x, y)


@op("Clip")
def clip(x: Tensor, min: Number | None = None, max: Number | None = None) -> Tensor:
    """Limit; the upper bound wins where it is below the lower bound."""
    if min is None and max is None:
        return x
    if isinstance(min, Tensor) != isinstance(max, Tensor) and min is not None and max is not None:
        return torch.clamp(torch.clamp(x, min=min), max=max)
    return torch.clamp(x, min, max)


@op("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit."""
    return functional.gelu(x, approximate=approximate)


@op("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: Float = 0.01) -> Tensor:
    """Leaky rectifier."""
    return functional.leaky_relu(x, alpha)


@op("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """Rectifier with a slope that broadcasts to the input; where it cannot, a slope a channel."""
    if slope.dim() == 1 and x.dim() > 2 and slope.shape[0] not in (1, x.shape[-1]):
        slope = slope.reshape(-1, *[1] * (x.dim() - 2))  # as before version 7
    return torch.where(x < 0, x * slope, x)


@op("Elu")
def elu(x: Tensor, *, alpha: Float = 1.0) -> Tensor:
    """Exponential linear unit."""
    return functional.elu(x, alpha)


@op("Celu")
def celu(x: Tensor, *, alpha: Float = 1.0) -> Tensor:
    """Continuously differentiable exponential linear unit."""
    return functional.celu(x, alpha)


@op("Selu")
def selu(
    x: Tensor, *, alpha: Float = 1.67326319217681884765625, gamma: Float = 1.05070102214813232421875
) -> Tensor:
    """Scaled exponential linear unit."""
    # Limited, since the infinite branch that is not chosen would give NaN as gradient.
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(x.clamp(max=0)))


@op("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: Float = 0.2, beta: Float = 0.5) -> Tensor:
    """Piecewise linear sigmoid."""
    if beta == 0.5 and math.isclose(alpha, 1 / 6, rel_tol=1e-6):
        return functional.hardsigmoid(x)
    return torch.clamp(alpha * x + beta, 0, 1)


@op("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: Float = 1.0) -> Tensor:
    """Zero up to a threshold."""
    return functional.threshold(x, alpha, 0.0)


@op("Shrink")
def shrink(x: Tensor, *, bias: Float = 0.0, lambd: Float = 0.5) -> Tensor:
    """Shrink towards zero."""
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, torch.zeros_like(x)))


@op("Swish")
def swish(x: Tensor, *, alpha: Float = 1.0) -> Tensor:
    """``x * sigmoid(alpha * x)``."""
    return functional.silu(x) if alpha == 1.0 else x * torch.sigmoid(alpha * x)


@op("SwiGLU")
def swiglu(x: Tensor, gate: Tensor, *, alpha: Float = 1.0) -> Tensor:
    """A gated swish."""
    return swish(x, alpha=alpha) * gate


@op("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Whether it is an infinity of the signs asked for."""
    if detect_negative and detect_positive:
        return torch.isinf(x)
    if detect_positive:
        return torch.isposinf(x)
    return torch.isneginf(x) if detect_negative else torch.zeros_like(x, dtype=torch.bool)
