"""Normalisations and the softmax family."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.compiler.onnx.axes import from_start
from torch_loom.compiler.onnx.table import Float, Int, State, op
from torch_loom.errors import OnnxError


@op("Softmax", since=13)
def softmax(x: Tensor, *, axis: Int = -1) -> Tensor:
    """Softmax along an axis."""
    return torch.softmax(x, axis)


@op("LogSoftmax", since=13)
def log_softmax(x: Tensor, *, axis: Int = -1) -> Tensor:
    """Logarithm of softmax along an axis."""
    return torch.log_softmax(x, axis)


@op("Hardmax", since=13)
def hardmax(x: Tensor, *, axis: Int = -1) -> Tensor:
    """One at the first largest, else zero."""
    return torch.zeros_like(x).scatter(axis, x.argmax(axis, keepdim=True), 1.0)


@op("Softmax")
def softmax_of_rows(x: Tensor, *, axis: Int = 1) -> Tensor:
    """Softmax over all axes from one on, as before version 13."""
    return torch.softmax(x.flatten(axis % max(x.dim(), 1)), -1).reshape(x.shape)


@op("LogSoftmax")
def log_softmax_of_rows(x: Tensor, *, axis: Int = 1) -> Tensor:
    """Logarithm of softmax over all axes from one on, as before version 13."""
    return torch.log_softmax(x.flatten(axis % max(x.dim(), 1)), -1).reshape(x.shape)


@op("Hardmax")
def hardmax_of_rows(x: Tensor, *, axis: Int = 1) -> Tensor:
    """One at the first largest over all axes from one on, as before version 13."""
    return hardmax(x.flatten(axis % max(x.dim(), 1)), axis=-1).reshape(x.shape)


@op("BatchNormalization")
def batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: State,
    variance: State,
    *,
    epsilon: Float = 1e-5,
    momentum: Float = 0.9,
    training_mode: Int = 0,
    spatial: Int = 1,
    is_test: Int = 0,
    consumed_inputs: object = None,
    num_outputs: int = 1,
) -> tuple[Tensor, ...]:
    """Batch normalisation; in training mode with the running statistics after the batch."""
    if not training_mode:
        return (functional.batch_norm(x, mean, variance, scale, bias, False, 0.0, epsilon),)
    axes = [axis for axis in range(x.dim()) if axis != 1]
    made = functional.batch_norm(x, None, None, scale, bias, True, 0.0, epsilon)
    with torch.no_grad():
        batch_variance, batch_mean = torch.var_mean(x, axes, correction=0)
        new_mean = mean * momentum + batch_mean * (1 - momentum)
        new_variance = variance * momentum + batch_variance * (1 - momentum)
    return made, new_mean, new_variance


@op("InstanceNormalization")
def instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: Float = 1e-5) -> Tensor:
    """Normalisation of each channel of each sample."""
    return functional.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


@op("GroupNormalization", since=21)
def group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: Int, epsilon: Float = 1e-5, stash_type: Int = 1
) -> Tensor:
    """Normalisation of groups of channels."""
    return functional.group_norm(x, num_groups, scale, bias, epsilon)


@op("GroupNormalization")
def group_norm_by_group(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: Int, epsilon: Float = 1e-5
) -> Tensor:
    """Normalisation of groups of channels, with a scale and a bias a group, as before version 21."""
    each = x.shape[1] // num_groups
    return functional.group_norm(
        x, num_groups, scale.repeat_interleave(each), bias.repeat_interleave(each), epsilon
    )


@op("LayerNormalization")
def layer_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: Int = -1,
    epsilon: Float = 1e-5,
    stash_type: Int = 1,
    num_outputs: int = 1,
) -> tuple[Tensor, ...]:
    """Normalisation over all axes from one on; also mean and inverse deviation."""
    first = from_start(axis, x.dim())
    shape = list(x.shape[first:])
    fits = list(scale.shape) == shape and (bias is None or list(bias.shape) == shape)
    if fits:
        made = functional.layer_norm(x, shape, scale, bias, epsilon)
    else:
        made = functional.layer_norm(x, shape, eps=epsilon) * scale
        made = made if bias is None else made + bias
    if num_outputs == 1:
        return (made,)
    axes = list(range(first, x.dim()))
    wide = x.float() if stash_type == 1 and x.dtype is not torch.float64 else x
    variance, mean = torch.var_mean(wide, axes, correction=0, keepdim=True)
    return made, mean, torch.rsqrt(variance + epsilon)


@op("RMSNormalization")
def rms_norm(
    x: Tensor, scale: Tensor, *, axis: Int = -1, epsilon: Float = 1e-5, stash_type: Int = 1
) -> Tensor:
    """Division by the root of the mean square over all axes from one on."""
    shape = list(x.shape[from_start(axis, x.dim()) :])
    if list(scale.shape) == shape and scale.dtype == x.dtype:
        return functional.rms_norm(x, shape, scale, epsilon)
    return (functional.rms_norm(x, shape, eps=epsilon) * scale).to(scale.dtype)


@op("LRN")
def local_response_norm(
    x: Tensor, *, size: Int, alpha: Float = 1e-4, beta: Float = 0.75, bias: Float = 1.0
) -> Tensor:
    """Division by a power of the sum of squares over neighbouring channels."""
    before, after = (size - 1) // 2, math.ceil((size - 1) / 2)
    squares = functional.pad(x.square().flatten(2).transpose(1, 2), (before, after))
    sums = squares.unfold(-1, size, 1).sum(-1).transpose(1, 2).reshape(x.shape)
    return x / (bias + (alpha / size) * sums) ** beta


@op("LpNormalization")
def lp_norm(x: Tensor, *, axis: Int = -1, p: Int = 2) -> Tensor:
    """Division by the norm along an axis; zero where that is zero."""
    length = torch.linalg.vector_norm(x, p, axis, keepdim=True)
    # The divisor is replaced, not the quotient: 0 / 0 would give NaN as gradient.
    return x / torch.where(length == 0, torch.ones_like(length), length)


@op("Dropout", pure=False)
def dropout(
    x: Tensor,
    ratio: Float | None = None,
    training_mode: Int | None = None,
    *,
    seed: Int | None = None,
    is_test: Int = 1,
    opset: int = 13,
    num_outputs: int = 1,
) -> tuple[Tensor, ...]:
    """Dropout, where training_mode; else the input and a mask of what is kept.

    Raises:
        OnnxError: it draws by a seed of its own.
    """
    rate = 0.5 if ratio is None else float(ratio)
    if not training_mode or rate == 0.0:
        mask = torch.ones_like(x, dtype=torch.bool if opset >= 10 else x.dtype)
        return (x, mask) if num_outputs > 1 else (x,)
    if seed is not None:
        raise OnnxError(
            "Dropout in training mode draws by PyTorch's generator, not by the seed of its node: remove the "
            "attribute 'seed', and call torch.manual_seed"
        )
    mask = torch.rand_like(x) >= rate
    return torch.where(mask, x / (1 - rate), torch.zeros_like(x)), mask
