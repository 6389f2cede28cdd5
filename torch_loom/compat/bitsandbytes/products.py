"""Products with weights of 4 bits: the weight is dequantised to the dtype of the other operand first."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from torch_loom.compat.bitsandbytes.blocks import (
    check_out,
    dequantize_4bit,
    dequantize_blockwise,
    unpack_4bit,
)

__all__ = ["gemm_4bit", "gemv_4bit", "gemv_4bit_out"]

FUSED_ROWS = 1536
"""With more rows the library does not ask for its fused kernel."""
SCALE_BLOCK_SIZE = 256
"""Of scales that are themselves quantised."""


def gemm_4bit(
    values: Tensor,
    packed: Tensor,
    weight_shape: Sequence[int],
    absmax: Tensor,
    blocksize: int,
    quant_type: str,
    bias: Tensor | None = None,
    absmax_8bit: Tensor | None = None,
    absmax_code: Tensor | None = None,
    absmax_offset: Tensor | None = None,
) -> Tensor:
    """Multiply `values` [..., k] by the transpose of the weight [n, k] that is packed.

    With `absmax_8bit` the weight's scales are quantised: `absmax`, `absmax_code` and `absmax_offset` restore
    them.
    """
    inner = values.shape[-1]
    if math.prod(values.shape[:-1]) <= FUSED_ROWS and inner % blocksize:
        message = (
            f"inner dimension ({inner}) is not aligned for fast kernel with blocksize={blocksize}, "
            "falling back to slower implementation."
        )
        warnings.warn(message, UserWarning, stacklevel=2)
    if absmax_8bit is not None:
        assert absmax_code is not None
        assert absmax_offset is not None
        scales = dequantize_blockwise(absmax_8bit, absmax, absmax_code, SCALE_BLOCK_SIZE, torch.float32)
        absmax = scales + absmax_offset
    weight = dequantize_4bit(packed, absmax, blocksize, quant_type, weight_shape, values.dtype)
    return torch.nn.functional.linear(values, weight, bias)


def gemv_4bit(
    values: Tensor, packed: Tensor, weight_shape: Sequence[int], absmax: Tensor, code: Tensor, blocksize: int
) -> Tensor:
    """Multiply the vector `values` by the weight that is packed; `code` has the 16 values of its type."""
    if blocksize not in (32, 64, 128, 256, 512, 1024, 2048, 4096):
        raise ValueError(f"invalid blocksize {blocksize}")
    weight = unpack_4bit(packed, code, absmax, blocksize, weight_shape)
    return torch.nn.functional.linear(values, weight.to(values.dtype))


def gemv_4bit_out(
    values: Tensor,
    packed: Tensor,
    weight_shape: Sequence[int],
    absmax: Tensor,
    code: Tensor,
    blocksize: int,
    out: Tensor,
) -> None:
    """Write what :func:`gemv_4bit` returns to `out`."""
    check_out(out, (*values.shape[:-1], weight_shape[0]), values.dtype)
    out.copy_(gemv_4bit(values, packed, weight_shape, absmax, code, blocksize))
