"""Convolutions under :class:`TensorCores`: products of windows, channels innermost, as implicit GEMM."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.numerics import _fits
from torch_loom.numerics.tensor_cores.matmuls import Handler, check, into, is_layer

if TYPE_CHECKING:
    from torch_loom.numerics.tensor_cores.emulation import TensorCores

aten = torch.ops.aten


def _windows(x: Tensor, kernel: list[int], stride: list[int], dilation: list[int]) -> Tensor:
    """[N, places..., kernel · C]: the windows of [N, C, sizes...]."""
    rank = len(kernel)
    for i, (size, step, space) in enumerate(zip(kernel, stride, dilation, strict=True)):
        x = x.unfold(2 + i, space * (size - 1) + 1, step)[..., ::space]
    return x.permute(0, *range(2, 2 * rank + 2), 1).flatten(rank + 1)


def _padded(x: Tensor, padding: list[int]) -> Tensor:
    return functional.pad(x, [each for size in reversed(padding) for each in (size, size)])


def _strided(x: Tensor, steps: list[int]) -> Tensor:
    """The view of [N, C, sizes...] that has every so many elements of each size."""
    for i, step in enumerate(steps):
        x = x.unfold(2 + i, 1, step).squeeze(-1)
    return x


def _cut(x: Tensor, first: int, sizes: Iterable[int]) -> Tensor:
    """The beginning of each dimension from `first` on."""
    for i, size in enumerate(sizes):
        x = x.narrow(first + i, 0, size)
    return x


def _convolved(
    mode: TensorCores, x: Tensor, weight: Tensor, stride: list[int], dilation: list[int], groups: int
) -> Tensor:
    """Float32 sums [N, O, places...] of a padded input."""
    kernel = list(weight.shape[2:])
    rank = len(kernel)
    parts = []
    for inputs, filters in zip(x.chunk(groups, 1), weight.chunk(groups), strict=True):
        windows = _windows(inputs, kernel, stride, dilation)
        flat = filters.permute(*range(2, rank + 2), 1, 0).reshape(-1, filters.shape[0])
        sums = mode.layer_product(windows.flatten(0, rank), flat, is_convolution=True, op="convolution")
        parts.append(sums.view(*windows.shape[:-1], -1).movedim(-1, 1))
    return torch.cat(parts, 1)


def _input_gradient(
    mode: TensorCores,
    grad: Tensor,
    weight: Tensor,
    sizes: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> Tensor:
    """Float32 sums [N, C, sizes...], also those of a transposed convolution.

    A convolution of the gradient, spread out by the stride, with the filters turned round.
    """
    kernel = list(weight.shape[2:])
    spatial = range(2, len(kernel) + 2)
    spread = grad.new_zeros(
        *grad.shape[:2], *((grad.shape[i + 2] - 1) * step + 1 for i, step in enumerate(stride))
    )
    _strided(spread, stride).copy_(grad)
    edges: list[int] = []
    for i in reversed(range(len(kernel))):
        before = dilation[i] * (kernel[i] - 1) - padding[i]
        after = sizes[i] + dilation[i] * (kernel[i] - 1) - before - spread.shape[i + 2]
        edges += [before, after]
    spread = functional.pad(spread, edges)
    turned = weight.flip(*spatial).reshape(groups, -1, *weight.shape[1:]).transpose(1, 2).flatten(0, 1)
    return _convolved(mode, spread, turned, [1] * len(kernel), dilation, groups)


def _weight_gradient(
    mode: TensorCores,
    x: Tensor,
    grad: Tensor,
    kernel: list[int],
    stride: list[int],
    dilation: list[int],
    groups: int,
) -> Tensor:
    """Float32 sums [O, C / groups, kernel...] of a padded input and the gradient of the result."""
    rank = len(kernel)
    parts = []
    for inputs, grads in zip(x.chunk(groups, 1), grad.chunk(groups, 1), strict=True):
        windows = _windows(inputs, kernel, stride, dilation)
        windows = _cut(windows, 1, grads.shape[2:])
        rows = grads.transpose(0, 1).flatten(1)
        sums = mode.layer_product(rows, windows.flatten(0, rank), is_convolution=True, op="convolution")
        parts.append(sums.view(-1, *kernel, inputs.shape[1]).movedim(-1, 1))
    return torch.cat(parts)


def _is_taken(mode: TensorCores, x: Tensor, weight: Tensor) -> bool:
    is_whole = x.numel() > 0 and weight.numel() > 0
    return is_whole and is_layer(mode, "convolution", x, weight, is_convolution=True)


def _spread(values: list[int], rank: int) -> list[int]:
    return list(values) * rank if len(values) == 1 else list(values)


def _convolution(
    mode: TensorCores,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    *_flags: bool,
) -> Any:
    if not _is_taken(mode, x, weight):
        return NotImplemented
    check(bias is None or bias.dtype == x.dtype)
    check(
        _fits.is_convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    )
    rank = x.dim() - 2
    stride, padding, dilation = (_spread(each, rank) for each in (stride, padding, dilation))
    if transposed:
        after = _spread(output_padding, rank)
        sizes = [
            (x.shape[i + 2] - 1) * stride[i]
            - 2 * padding[i]
            + dilation[i] * (weight.shape[i + 2] - 1)
            + after[i]
            + 1
            for i in range(rank)
        ]
        sums = _input_gradient(mode, x, weight, sizes, stride, padding, dilation, groups)
    else:
        sums = _convolved(mode, _padded(x, padding), weight, stride, dilation, groups)
    if bias is not None:
        sums = sums + bias.float().view(-1, *[1] * rank)
    return sums.to(x.dtype).contiguous()


def _convolution_backward(
    mode: TensorCores,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    wanted: list[bool],
) -> Any:
    if not _is_taken(mode, x, weight):
        return NotImplemented
    check(
        _fits.is_convolution(x, weight, None, stride, padding, dilation, transposed, output_padding, groups)
    )
    rank = x.dim() - 2
    stride, padding, dilation = (_spread(each, rank) for each in (stride, padding, dilation))
    kernel = list(weight.shape[2:])
    grad_x = grad_weight = grad_bias = None
    if wanted[0]:
        if transposed:
            sums = _convolved(mode, _padded(grad, padding), weight, stride, dilation, groups)
            sums = _cut(sums, 2, x.shape[2:])
        else:
            sizes = list(x.shape[2:])
            sums = _input_gradient(mode, grad, weight, sizes, stride, padding, dilation, groups)
        grad_x = sums.to(x.dtype).contiguous()
    if wanted[1]:
        # Of a transposed convolution the gradient of the result has the windows.
        wide, narrow = (grad, x) if transposed else (x, grad)
        sums = _weight_gradient(mode, _padded(wide, padding), narrow, kernel, stride, dilation, groups)
        grad_weight = sums.to(weight.dtype).contiguous()
    if wanted[2]:
        grad_bias = grad.sum((0, *range(2, rank + 2)))
    return grad_x, grad_weight, grad_bias


HANDLERS: dict[Any, Handler] = {
    aten.convolution.default: _convolution,
    aten.convolution.out: into(_convolution),
    aten._convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
}
