"""Elementwise ops of one operand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.op.apply import apply
from torch_loom.pybuda.tensor import Tensor

Torch = Any  # a torch.Tensor; several of its methods have no types


def _unary(op_type: str, name: str, a: Any, compute: Any, **attributes: Any) -> Tensor:
    made: Tensor = apply(op_type, name, (a,), compute, attributes)
    return made


def Abs(name: str, operandA: Any) -> Tensor:
    """Absolute value."""
    return _unary("abs", name, operandA, torch.abs)


def Exp(name: str, operandA: Any) -> Tensor:
    """Exponential."""
    return _unary("exp", name, operandA, torch.exp)


def Log(name: str, operandA: Any) -> Tensor:
    """Natural logarithm, as documented: nothing is added to the operand."""
    return _unary("log", name, operandA, torch.log)


def Pow(name: str, operandA: Any, exponent: float) -> Tensor:
    """Power with a number as exponent."""
    return _unary("pow", name, operandA, lambda x: torch.pow(x, exponent), exponent=exponent)


def Identity(
    name: str, operandA: Any, unsqueeze: str | None = None, unsqueeze_dim: int | None = None
) -> Tensor:
    """The operand; with ``unsqueeze`` set, with a dimension of size one inserted at ``unsqueeze_dim``."""

    def run(x: Torch) -> Torch:
        if unsqueeze is None:
            return x.view_as(x)
        if unsqueeze_dim is None:
            raise PyBudaError("unsqueeze needs unsqueeze_dim, the index of the new dimension")
        return x.unsqueeze(unsqueeze_dim)

    return _unary("nop", name, operandA, run, unsqueeze=unsqueeze, unsqueeze_dim=unsqueeze_dim)


def Buffer(name: str, operandA: Any) -> Tensor:
    """The operand; a buffer is never removed."""
    return _unary("buffer", name, operandA, lambda x: x.view_as(x))


def Reciprocal(name: str, operandA: Any) -> Tensor:
    """One divided by the operand, as documented: nothing is added to it."""
    return _unary("reciprocal", name, operandA, torch.reciprocal)


def Sqrt(name: str, operandA: Any) -> Tensor:
    """Square root."""
    return _unary("sqrt", name, operandA, torch.sqrt)


def Relu(name: str, operandA: Any, threshold: float = 0.0, mode: str = "min") -> Tensor:
    """Mode ``min``: the operand where at least the threshold, else 0; ``max``: within [0, threshold]."""

    def run(x: Torch) -> Torch:
        if mode == "min":
            return torch.relu(x) if threshold == 0 else torch.where(x >= threshold, x, torch.zeros_like(x))
        if mode == "max":
            return torch.clamp(x, 0.0, threshold)
        raise PyBudaError(f"mode {mode!r} is none of 'min', 'max'")

    return _unary("relu", name, operandA, run, threshold=threshold, mode=mode)


def LeakyRelu(name: str, operandA: Any, alpha: float) -> Tensor:
    """The operand where positive, ``alpha`` times it elsewhere."""
    return _unary("leaky_relu", name, operandA, lambda x: functional.leaky_relu(x, alpha), alpha=alpha)


def Gelu(name: str, operandA: Any, approximate: str = "none") -> Tensor:
    """GELU, exact (``none``) or by ``tanh``."""
    return _unary(
        "gelu",
        name,
        operandA,
        lambda x: functional.gelu(x, approximate=approximate),
        approximate=approximate,
    )


def Sigmoid(name: str, operandA: Any) -> Tensor:
    """Logistic function."""
    return _unary("sigmoid", name, operandA, torch.sigmoid)


def Tanh(name: str, operandA: Any) -> Tensor:
    """Hyperbolic tangent."""
    return _unary("tanh", name, operandA, torch.tanh)


def Sine(name: str, operandA: Any) -> Tensor:
    """Sine of radians."""
    return _unary("sine", name, operandA, torch.sin)


def Cosine(name: str, operandA: Any) -> Tensor:
    """Cosine of radians."""
    return _unary("cosine", name, operandA, torch.cos)


def Clip(name: str, operandA: Any, min: float, max: float) -> Tensor:
    """The operand, within [min, max]."""
    return _unary("clip", name, operandA, lambda x: torch.clamp(x, min, max), min=min, max=max)


def Argmax(name: str, operandA: Any, dim: int | None = None) -> Tensor:
    """Where the largest element is, along ``dim`` or in all; dimensions stay, in the operand's dtype."""
    return _unary("argmax", name, operandA, lambda x: torch.argmax(x, dim, keepdim=True).to(x.dtype), dim=dim)


def CumSum(name: str, operandA: Any, axis: int, exclusive: bool = False) -> Tensor:
    """Sums of the elements up to each element along an axis; ``exclusive`` leaves the element itself out."""

    def run(x: Torch) -> Torch:
        sums = torch.cumsum(x, axis, dtype=x.dtype)
        if not exclusive:
            return sums
        first = torch.zeros_like(x.narrow(axis, 0, 1))
        return torch.cat((first, sums.narrow(axis, 0, x.shape[axis] - 1)), axis)

    return _unary("cumsum", name, operandA, run, axis=axis, exclusive=exclusive)


def LogicalNot(name: str, operandA: Any) -> Tensor:
    """1 where zero, else 0."""
    return _unary("logical_not", name, operandA, lambda x: torch.logical_not(x).to(x.dtype))


def Dropout(name: str, operandA: Any, p: float = 0.5, training: bool = True, seed: int = 0) -> Tensor:
    """Zero elements with probability ``p``, scale the others by 1/(1-p); ``seed`` fixes which."""

    def run(x: Torch) -> Torch:
        if not 0 <= p <= 1:
            raise PyBudaError(f"p is {p}; it is a probability, 0 to 1")
        if not training or p == 0:
            return x.view_as(x)
        # NumPy's: a generator of PyTorch's can be no part of a graph, nor draw one mask for all samples.
        kept = np.random.default_rng(seed).random(tuple(x.shape)) >= p
        return x * torch.tensor(kept / max(1 - p, 1e-45), dtype=x.dtype, device=x.device)

    return _unary("dropout", name, operandA, run, p=p, training=training, seed=seed)


def Tilize(name: str, operandA: Any) -> Tensor:
    """The operand, in tiles of 32 x 32 on the chip; values stay."""
    return _unary("tilizer", name, operandA, lambda x: x.view_as(x))
