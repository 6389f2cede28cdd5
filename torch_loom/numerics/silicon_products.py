"""Convolutions and biases as a Tensix chip's matrix unit computes them: products of windows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.errors import OperandError
from torch_loom.numerics._ops import NONE, ops
from torch_loom.numerics._silicon import has_blocks, without_blocks
from torch_loom.numerics.formats import DataFormat


@dataclass(frozen=True)
class Product:
    """Checked arguments of a product, as the ops take them."""

    fidelity: int
    accumulate: DataFormat
    silicon: int
    """The mode of sums, as the ops take it; 0: fast."""
    out_format: int
    waiting: int = NONE
    """The format in which sums wait between blocks of K; NONE: that of the sums."""

    @property
    def has_blocks(self) -> bool:
        """Whether K goes in blocks, between which sums of 16 bits wait in the result's format."""
        return has_blocks(self.silicon) and self.accumulate is not DataFormat.Float32


def with_bias(sums: Tensor, bias: Tensor, fidelity: int, accumulate: DataFormat, silicon: int) -> Tensor:
    """A product and its bias, which the matrix unit adds as it adds elements."""
    if accumulate is DataFormat.Int32:
        whole: Tensor = ops.quantize(sums + bias, accumulate.value)
        return whole
    added: Tensor = ops.elementwise(sums, bias, 1, fidelity, accumulate.value, without_blocks(silicon))
    return added


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    dilation: list[int],
    groups: int,
    how: Product,
) -> Tensor:
    """A convolution of one to three dimensions of a padded input, as products of its windows."""
    kernel = list(weight.shape[2:])
    rank = len(kernel)
    batched = input if input.dim() == rank + 2 else input.unsqueeze(0)
    places = [
        (size - d * (k - 1) - 1) // s + 1
        for size, d, k, s in zip(batched.shape[2:], dilation, kernel, stride, strict=True)
    ]
    if min(places) < 1:
        raise OperandError(
            f"conv{rank}d: a window of {kernel}, dilation {dilation}, does not fit into an input of "
            f"{list(batched.shape[2:])} with its padding"
        )
    count, out_channels = batched.shape[0], weight.shape[0]
    depth = weight[0].numel()
    if rank == 2:
        # [N, C * kH * kW, H' * W']
        windows = functional.unfold(batched, tuple(kernel), tuple(dilation), 0, tuple(stride))
    else:
        windows = batched
        for i in range(rank):
            reach = dilation[i] * (kernel[i] - 1) + 1
            windows = windows.unfold(2 + i, reach, stride[i])[..., :: dilation[i]]
        order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
        windows = windows.permute(order).reshape(count, groups * depth, math.prod(places))
    left = windows.reshape(count, groups, depth, math.prod(places)).transpose(-2, -1)
    right = weight.reshape(groups, out_channels // groups, depth).transpose(-2, -1)
    accumulate = how.accumulate.value
    if groups == 1:
        # One matrix of all windows, so that the weight is laid out once.
        left, right = left.squeeze(1), right.squeeze(0)
    sums = ops.matmul(left, right, how.fidelity, accumulate, how.silicon, how.waiting)
    if groups == 1:
        sums = sums.unsqueeze(1)
    result: Tensor = sums.transpose(-2, -1).reshape(count, out_channels, *places)
    if bias is not None:
        bias = bias.view(-1, *[1] * rank).to(result.dtype)
        result = with_bias(result, bias, how.fidelity, how.accumulate, how.silicon)
    if how.out_format != NONE:
        result = ops.quantize(result, how.out_format)
    return result if input.dim() == rank + 2 else result.squeeze(0)


def transposed_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    output_padding: list[int],
    groups: int,
    how: Product,
) -> Tensor:
    """A transposed convolution: one of the input, spread out by the stride, with the filters turned round."""
    kernel = list(weight.shape[2:])
    rank = len(kernel)
    spread = input
    for i, step in enumerate(stride):
        if step > 1:
            zeros = spread.new_zeros((*spread.shape, step - 1))
            parts = torch.cat((spread.unsqueeze(-1), zeros), -1)
            # The zeros beside each element are behind it along its own dimension.
            spread = parts.movedim(-1, 3 + i).flatten(2 + i, 3 + i)
            spread = spread.narrow(2 + i, 0, spread.shape[2 + i] - (step - 1))
    edges: list[int] = []
    for i in reversed(range(rank)):
        edge = dilation[i] * (kernel[i] - 1) - padding[i]
        edges += [edge, edge + output_padding[i]]
    spread = functional.pad(spread, edges)
    turned = weight.flip(*range(2, 2 + rank)).reshape(groups, -1, *weight.shape[1:])
    turned = turned.transpose(1, 2).flatten(0, 1)
    return convolution(spread, turned, bias, [1] * rank, dilation, groups, how)
