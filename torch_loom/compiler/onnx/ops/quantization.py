"""Quantisation to integers and 8-bit floats, and products of quantised tensors."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Unpack

from torch_loom.compiler.onnx.ops.layout import cast
from torch_loom.compiler.onnx.ops.matmul import conv
from torch_loom.compiler.onnx.ops.windows import Convolution
from torch_loom.compiler.onnx.table import Int, op


def _along(value: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """Return one number, a number a place of the axis, or one a block, as what broadcasts to the tensor."""
    if value.dim() == 0 or (value.numel() == 1 and not block_size):
        return value.reshape(())
    if block_size:
        return value.repeat_interleave(block_size, axis).narrow(axis, 0, x.shape[axis])
    shape = [1] * x.dim()
    shape[axis] = value.shape[0]
    return value.reshape(shape)


@op("QuantizeLinear")
def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: Int = 1,
    block_size: Int = 0,
    output_dtype: torch.dtype | int = 0,
    precision: torch.dtype | int = 0,
    saturate: Int = 1,
) -> Tensor:
    """Divide by a scale, round, and add a zero point."""
    dtype = torch.uint8 if zero_point is None else zero_point.dtype
    if zero_point is None and isinstance(output_dtype, torch.dtype):
        dtype = output_dtype
    wide = precision if isinstance(precision, torch.dtype) else scale.dtype
    divided = x.to(wide) / _along(scale, x, axis, block_size).to(wide)
    if dtype.is_floating_point:
        return cast(divided, to=dtype, saturate=saturate)
    rounded = torch.round(divided)
    if zero_point is not None:
        rounded = rounded + _along(zero_point, x, axis, block_size).to(rounded.dtype)
    limits = torch.iinfo(dtype)
    return rounded.clamp(limits.min, limits.max).to(dtype)


@op("DequantizeLinear")
def dequantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: Int = 1,
    block_size: Int = 0,
    output_dtype: torch.dtype | int = 0,
) -> Tensor:
    """Subtract the zero point and multiply by the scale."""
    dtype = output_dtype if isinstance(output_dtype, torch.dtype) else scale.dtype
    wide = x.to(torch.float32)
    if zero_point is not None:
        wide = wide - _along(zero_point, x, axis, block_size).to(wide.dtype)
    return (wide * _along(scale, x, axis, block_size).to(wide.dtype)).to(dtype)


@op("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantise to uint8 by the range of the values: the result, its scale and its zero point."""
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = (high - low) / 255
    zero_point = torch.round(torch.clamp(-low / scale, 0, 255)).to(torch.uint8)
    return quantize_linear(x, scale, zero_point), scale, zero_point


@op("MatMulInteger")
def matmul_integer(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    """Product of integers less their zero points, as int32."""
    left, right = a.to(torch.int32), b.to(torch.int32)
    if a_zero is not None:
        left = left - (a_zero.unsqueeze(-1) if a_zero.dim() else a_zero).to(torch.int32)
    if b_zero is not None:
        right = right - b_zero.to(torch.int32)
    return left @ right


@op("QLinearMatMul")
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    """Product of quantised matrices, quantised."""
    rows = a.dim() - 2
    product = _wide(a, a_zero, rows) @ _wide(b, b_zero, b.dim() - 1)
    scale = _along(a_scale, product, product.dim() - 2, 0) * _along(b_scale, product, product.dim() - 1, 0)
    return quantize_linear((product * scale).to(y_scale.dtype), y_scale, y_zero, axis=rows)


@op("ConvInteger")
def conv_integer(
    x: Tensor,
    weight: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    **window: Unpack[Convolution],
) -> Tensor:
    """Convolution of integers less their zero points, as int32."""
    return conv(_wide(x, x_zero, 1), _wide(weight, w_zero, 0), **window).to(torch.int32)


@op("QLinearConv")
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    weight: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
    **window: Unpack[Convolution],
) -> Tensor:
    """Convolution of quantised tensors, quantised; the bias has the scale of the products."""
    wide_bias = None if bias is None else bias.double()
    made = conv(_wide(x, x_zero, 1), _wide(weight, w_zero, 0), wide_bias, **window)
    return quantize_linear((made * x_scale * _along(w_scale, made, 1, 0)).float(), y_scale, y_zero)


def _wide(x: Tensor, zero_point: Tensor | None, axis: int) -> Tensor:
    # Doubles hold every product and sum of 8-bit integers exactly.
    return x.double() if zero_point is None else x.double() - _along(zero_point, x, axis, 0).double()
