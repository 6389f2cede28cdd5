"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import Unpack

from torch_loom.compiler.onnx.ops.windows import Convolution, pads_of, same_pads, steps_of, torch_pads
from torch_loom.compiler.onnx.table import Float, Int, Ints, op, tensors

tensors("MatMul", torch.matmul, 2)
tensors("Det", torch.linalg.det)

_CONVOLUTIONS: Sequence[Callable[..., Tensor]] = (functional.conv1d, functional.conv2d, functional.conv3d)
_TRANSPOSED: Sequence[Callable[..., Tensor]] = (
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
)


@op("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: Float = 1.0,
    beta: Float = 1.0,
    transA: Int = 0,  # noqa: N803 (ONNX's name)
    transB: Int = 0,  # noqa: N803
) -> Tensor:
    """``alpha * a @ b + beta * c``."""
    if alpha == 1.0 and transB and not transA and (c is None or (beta == 1.0 and c.dim() == 1)):
        return functional.linear(a, b, c)
    product = (a.mT if transA else a) @ (b.mT if transB else b)
    product = product if alpha == 1.0 else (alpha * product).to(product.dtype)
    if c is None or beta == 0.0:
        return product
    return product + (c if beta == 1.0 else (beta * c).to(c.dtype))


@op("Einsum")
def einsum(*values: Tensor, equation: str) -> Tensor:
    """Einstein's sum."""
    return torch.einsum(equation, *values)


@op("Conv")
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    **window: Unpack[Convolution],
) -> Tensor:
    """Convolution over one to three dimensions."""
    rank = weight.dim() - 2
    function = _of_rank(_CONVOLUTIONS, rank, "Conv")
    stride, dilation = steps_of(window, rank)
    padding = pads_of(window, x.shape[2:], weight.shape[2:])
    if padding[:rank] != padding[rank:]:
        x, padding = functional.pad(x, torch_pads(padding)), [0] * (2 * rank)
    return function(x, weight, bias, stride, padding[:rank], dilation, window.get("group", 1))


@op("ConvTranspose")
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    **window: Unpack[Convolution],
) -> Tensor:
    """Transposed convolution over one to three dimensions."""
    rank = weight.dim() - 2
    function = _of_rank(_TRANSPOSED, rank, "ConvTranspose")
    stride, dilation = steps_of(window, rank)
    auto_pad, group = window.get("auto_pad", "NOTSET"), window.get("group", 1)
    extra = list(output_padding or [0] * rank)
    padding = list(window.get("pads") or [0] * (2 * rank))
    kernel = weight.shape[2:]
    full = [
        (x.shape[2 + axis] - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1 + extra[axis]
        for axis in range(rank)
    ]
    if output_shape is not None or auto_pad.startswith("SAME"):
        wanted = list(output_shape or [])[-rank:] or [
            x.shape[2 + axis] * stride[axis] for axis in range(rank)
        ]
        # What an explicit shape leaves over goes to the begin, unless SAME_UPPER puts it at the end.
        at_begin = auto_pad != "SAME_UPPER" if output_shape is not None else auto_pad == "SAME_LOWER"
        padding = same_pads([full[axis] - wanted[axis] for axis in range(rank)], at_begin)
    if padding[:rank] == padding[rank:] and min(padding) >= 0:
        return function(x, weight, bias, stride, padding[:rank], extra, group, dilation)
    made = function(x, weight, bias, stride, 0, extra, group, dilation)
    return functional.pad(made, torch_pads([-each for each in padding]))


def _of_rank(functions: Sequence[Callable[..., Tensor]], rank: int, name: str) -> Callable[..., Tensor]:
    if not 1 <= rank <= len(functions):
        raise ValueError(f"{name} over {rank} dimensions: PyTorch has it for 1 to {len(functions)}")
    return functions[rank - 1]
