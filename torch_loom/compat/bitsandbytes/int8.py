"""LLM.int8(): rows scaled to 8 bits, products of them in whole numbers, and outliers that are left out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["double_quant", "linear_matmul", "linear_matmul_out", "mm_dequant", "vectorwise_quant"]

LEVELS = 127.0
DEQUANTIZE = 6.200012e-05
"""The inverse square of the levels, as the library rounds it."""
INT_MM_ROWS = 17
INT_MM_MULTIPLE = 8
"""What `torch._int_mm` takes on CUDA: so many rows at least, and multiples of so many columns."""


def linear_matmul(values: Tensor, weight: Tensor) -> Tensor:
    """Multiply int8 `values` [..., k] by the transpose of `weight` [n, k], exactly: int32 [..., n]."""
    _check_matmul(values, weight)
    rows, inner = math.prod(values.shape[:-1]), values.shape[-1]
    padded_values = _padded(values.reshape(rows, inner), max(INT_MM_ROWS, rows))
    padded_weight = _padded(weight, weight.shape[0] + -weight.shape[0] % INT_MM_MULTIPLE)
    product = torch._int_mm(padded_values, padded_weight.t())[:rows, : weight.shape[0]]
    return product.contiguous().view(*values.shape[:-1], weight.shape[0])


def linear_matmul_out(values: Tensor, weight: Tensor, out: Tensor) -> None:
    """Write what :func:`linear_matmul` returns to `out`."""
    _check_matmul(values, weight)
    if out.dtype != torch.int32:
        raise ValueError(f"out must be int32, got {out.dtype}")
    expected = (*values.shape[:-1], weight.shape[0])
    if out.shape != expected:
        raise ValueError(f"Output shape {out.shape} does not match expected shape {expected}")
    out.copy_(linear_matmul(values, weight))


def mm_dequant(
    product: Tensor,
    row_stats: Tensor,
    col_stats: Tensor,
    dtype: torch.dtype | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Give what an int32 product [..., n] of rows and columns with these scales stands for, plus `bias` [n].

    The result is rounded to float16 before it gets another `dtype`, as there.
    """
    if product.dtype != torch.int32:
        raise ValueError(f"A must be int32, got {product.dtype}")
    if row_stats.dtype != torch.float32:
        raise ValueError(f"row_stats must be float32, got {row_stats.dtype}")
    if col_stats.dtype != torch.float32:
        raise ValueError(f"col_stats must be float32, got {col_stats.dtype}")
    scaled = product.view(-1, product.shape[-1]) * row_stats.view(-1, 1) * col_stats.view(1, -1) * DEQUANTIZE
    fuse_bias = bias is not None and bias.dtype == torch.float16
    if bias is not None and fuse_bias:
        scaled += bias
    out = scaled.to(torch.float16).view(product.shape)
    if bias is not None and not fuse_bias:
        out += bias
    return out.to(dtype or torch.float16)


def vectorwise_quant(values: Tensor, threshold: float = 0.0) -> tuple[Tensor, Tensor, Tensor | None]:
    """Quantise float16 rows to int8: give them, their scales, and with a threshold the outliers' columns.

    Values from the threshold on are outliers. They do not count for the scale, and columns with one become
    zeros.
    """
    if values.dtype != torch.float16:
        raise ValueError(f"A must be float16, got {values.dtype}")
    if threshold < 0.0:
        raise ValueError("threshold must be non-negative")
    rows, columns = math.prod(values.shape[:-1]), None
    kept = values.reshape(rows, values.shape[-1])
    if threshold > 0.0:
        outliers = kept.abs() >= threshold
        columns = outliers.any(0).nonzero().view(-1)
        kept = kept.masked_fill(outliers, 0.0)
    row_stats = kept.abs().amax(1).float() if kept.numel() else values.new_zeros(rows, dtype=torch.float32)
    # A row of zeros has the scale infinity; what that gives is no number, and becomes 0.
    codes = (kept * (LEVELS / row_stats).view(-1, 1)).nan_to_num_(nan=0.0).round_().to(torch.int8)
    if rows > 1 and columns is not None:
        codes.index_fill_(1, columns, 0)
    return codes.view(values.shape), row_stats, columns


def double_quant(
    values: Tensor, threshold: float = 0.0
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Quantise by rows and by columns: give both, both scales, and the outliers' columns."""
    by_rows, row_stats, columns = vectorwise_quant(values, threshold)
    kept = values.view(-1, values.shape[-1])
    if threshold > 0.0:
        kept = kept.masked_fill(kept.abs() >= threshold, 0.0)
    col_stats = kept.abs().amax(0).float()
    by_columns = torch.round(kept.mul(LEVELS) / col_stats).to(torch.int8).view(values.shape)
    return by_rows, by_columns, row_stats, col_stats, columns


def _check_matmul(values: Tensor, weight: Tensor) -> None:
    if weight.dtype != torch.int8:
        raise ValueError("B must be int8")
    if values.dtype != torch.int8:
        raise ValueError("A must be int8")
    if weight.ndim != 2:
        raise ValueError("Only two dimensional matrices are supported for argument B")
    if values.ndim not in (2, 3):
        raise ValueError("Only two or three dimensional matrices are supported for argument A")
    if values.numel() == 0:
        raise ValueError(f"Input tensor dimensions need to be > 0: {values.shape}")
    if values.shape[-1] != weight.shape[-1]:
        shapes = f"B @ A = {values.shape} @ {weight.shape}"
        raise ValueError(f"int8_linear_matmul only supports B^T @ A. Inner dimensions do not match: {shapes}")


def _padded(matrix: Tensor, rows: int) -> Tensor:
    """Append zeros, which change no product, for as many rows and for a number of columns that CUDA takes."""
    more_columns, more_rows = -matrix.shape[1] % INT_MM_MULTIPLE, rows - matrix.shape[0]
    if more_columns or more_rows:
        return torch.nn.functional.pad(matrix, (0, more_columns, 0, more_rows))
    return matrix.contiguous()
