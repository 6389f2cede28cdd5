"""Softmax and norms."""

from __future__ import annotations

from typing import Any

import torch

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.op.apply import apply
from torch_loom.pybuda.tensor import Tensor

Torch = Any  # a torch.Tensor; several of its methods have no types


def Softmax(name: str, operandA: Any, *, dim: int, stable: bool = True) -> Tensor:
    """Exponentials divided by their sum along a dimension; ``stable`` takes the maximum off first."""

    def run(x: Torch) -> Torch:
        if stable:
            return torch.softmax(x, dim)
        powers = torch.exp(x)
        return powers / powers.sum(dim, keepdim=True)

    made: Tensor = apply("softmax", name, (operandA,), run, {"dim": dim, "stable": stable})
    return made


def LogSoftmax(name: str, operandA: Any, *, dim: int, stable: bool = True) -> Tensor:
    """Logarithm of the softmax along a dimension."""

    def run(x: Torch) -> Torch:
        if stable:
            return torch.log_softmax(x, dim)
        return x - torch.log(torch.exp(x).sum(dim, keepdim=True))

    made: Tensor = apply("log_softmax", name, (operandA,), run, {"dim": dim, "stable": stable})
    return made


def Layernorm(
    name: str, operandA: Any, weights: Any, bias: Any, dim: int = -1, epsilon: float = 1e-05
) -> Tensor:
    """Normalise to mean 0 and variance 1 along a dimension, then scale and shift.

    Weights and bias have the size of the dimension, or a shape that broadcasts to the operand's.
    """

    def run(x: Torch, scale: Torch, shift: Torch) -> Torch:
        size, is_last = x.shape[dim], dim % x.dim() == x.dim() - 1
        if is_last and scale.numel() == size and shift.numel() == size:
            return torch.nn.functional.layer_norm(x, (size,), scale.flatten(), shift.flatten(), epsilon)
        centred = x - x.mean(dim, keepdim=True)
        normal = centred * torch.rsqrt((centred * centred).mean(dim, keepdim=True) + epsilon)
        return normal * _along(scale, x, dim) + _along(shift, x, dim)

    attributes = {"dim": dim, "epsilon": epsilon}
    made: Tensor = apply("layernorm", name, (operandA, weights, bias), run, attributes)
    return made


def Batchnorm(
    name: str,
    operandA: Any,
    weights: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    epsilon: float = 1e-05,
) -> Tensor:
    """Normalise the channels of (N, C, …) by given means and variances, then scale and shift."""

    def run(x: Torch, *channels: Torch) -> Torch:
        if x.dim() < 2:
            raise PyBudaError(f"an operand (N, C, …) was expected, not {tuple(x.shape)}")
        scale, shift, mean, variance = (_along(value.flatten(), x, 1) for value in channels)
        return (x - mean) * torch.rsqrt(variance + epsilon) * scale + shift

    operands = (operandA, weights, bias, running_mean, running_var)
    made: Tensor = apply("batchnorm", name, operands, run, {"epsilon": epsilon})
    return made


def _along(value: Torch, x: Torch, dim: int) -> Torch:
    if value.dim() != 1 or value.numel() == 1:
        return value
    shape = [1] * x.dim()
    shape[dim] = -1
    return value.reshape(shape)
