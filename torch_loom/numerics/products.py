"""Products with math fidelity: what the matrix unit of a Tensix chip computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.errors import OperandError
from torch_loom.numerics import silicon_products
from torch_loom.numerics._checks import (
    DTYPE_FORMATS,
    check_accumulate,
    check_families,
    check_fidelity,
    check_floats,
    check_format,
    check_mode,
)
from torch_loom.numerics._ops import NONE, ops
from torch_loom.numerics._silicon import (
    check_destination,
    check_no_blocks,
    silicon_mode,
)
from torch_loom.numerics.formats import DataFormat, ExponentFamily, MathFidelity


def default_accumulate(operands: Sequence[DataFormat], *, has_float32: bool = True) -> DataFormat:
    """Return the format that sums are kept in unless the user says otherwise.

    Args:
        operands: the operands' formats, of one exponent family.
        has_float32: whether the chip keeps sums in float32 (wormhole_b0 and later).
    """
    if all(fmt.is_integer for fmt in operands):
        return DataFormat.Int32
    if has_float32 and DataFormat.Float32 in operands:
        return DataFormat.Float32
    family = next(fmt.exponent_family for fmt in operands if not fmt.is_integer)
    return DataFormat.Float16_b if family is ExponentFamily.B else DataFormat.Float16


def _checked(
    op: str,
    a: Tensor,
    b: Tensor,
    fidelity: MathFidelity,
    accumulate: DataFormat | None,
    mode: str,
    out_format: DataFormat | None,
    chip: str,
    k_block: int | None,
    l1_accumulate: bool,
) -> silicon_products.Product:
    formats = {"operand 0": DTYPE_FORMATS[a.dtype], "operand 1": DTYPE_FORMATS[b.dtype]}
    check_families(op, formats)
    fidelity = check_fidelity(op, fidelity)
    if accumulate is None:
        accumulate = default_accumulate(list(formats.values()))
    accumulate = check_accumulate(op, accumulate, fidelity)
    out = NONE if out_format is None else check_format(op, out_format, "out_format").value
    silicon = 0
    if check_mode(op, mode):
        silicon = silicon_mode(op, formats["operand 0"], chip, k_block, l1_accumulate)
        check_destination(op, formats["operand 0"], accumulate)
    else:
        check_no_blocks(op, k_block, l1_accumulate)
    how = silicon_products.Product(fidelity.value, accumulate, silicon, out)
    return replace(how, waiting=out) if how.has_blocks else how


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    fidelity: MathFidelity = MathFidelity.HiFi4,
    accumulate: DataFormat | None = None,
    mode: str = "fast",
    out_format: DataFormat | None = None,
    chip: str = "wormhole_b0",
    k_block: int | None = None,
    l1_accumulate: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return ``a @ b`` as the chip's matrix unit computes it. Differentiable: the backward's products alike.

    Args:
        a: activations (SrcB), [..., M, K] or [K], any floating-point dtype.
        b: weights (SrcA), [..., K, N] or [K]; leading dimensions broadcast as in :func:`torch.matmul`.
        fidelity: which bits of the operands a product sees.
        accumulate: the format of the sums: Float32, Float16_b, Float16, or Int32 (exact, HiFi4 alone).
            Default: Float32 if an operand is float32 or float64, else the operands' dtype.
        mode: ``"fast"``: PyTorch's float32 matmul over the masked operands, rounded once. ``"silicon"``: as
            the chip's matrix unit computes it, to the bit; operands of an exponent field of 0 are zero.
        out_format: the format of the result; default: the accumulate format.
        chip: whose matrix unit ``"silicon"`` means: ``"wormhole_b0"``, ``"blackhole"``, or ``"grayskull"``,
            which is computed by Wormhole's rule.
        k_block: in ``"silicon"``, how many tiles of K (32 products each) are summed before partial sums wait
            in memory, in float32 (float32 sums) or in the result's format: tt-metal's ``in0_block_w``. None:
            all of K.
        l1_accumulate: in ``"silicon"``, whether the packer adds blocks where they wait, if there are more
            than two: tt-metal's ``packer_l1_acc``.
        out: a tensor of the dtype of `a` to write to; no gradients then.

    Returns:
        The product, of the dtype of `a`.

    Raises:
        FormatError: a format or fidelity that a product cannot have, or operands of two exponent families.
        OperandError: an operand without floating-point values.
    """
    a = check_floats("matmul", a, "a")
    b = check_floats("matmul", b, "b")
    how = _checked("matmul", a, b, fidelity, accumulate, mode, out_format, chip, k_block, l1_accumulate)
    arguments = (a, b, how.fidelity, how.accumulate.value, how.silicon, how.out_format)
    if out is None:
        result: Tensor = ops.matmul(*arguments)
        return result
    if check_floats("matmul", out, "out").dtype != a.dtype:
        raise OperandError(f"matmul: out is a {out.dtype} tensor; allowed: {a.dtype}, the dtype of a")
    torch.ops.loom_numerics.matmul.out(*arguments, out=out)
    return out


def _pair(name: str, value: int | Sequence[int], lowest: int) -> list[int]:
    values = [value] if isinstance(value, int | torch.SymInt) else list(value)
    pair = values * 2 if len(values) == 1 else values
    if len(pair) != 2 or any(each < lowest for each in pair):
        raise OperandError(f"conv2d: {name} is {value!r}; allowed: one or two whole numbers from {lowest} on")
    return pair


def _check_channels(input: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    filters, channels = weight.shape[:2]
    if groups < 1 or filters % groups or input.shape[-3] != channels * groups:
        raise OperandError(
            f"conv2d: an input of shape {list(input.shape)} and a weight of shape {list(weight.shape)} do "
            f"not fit {groups} groups; allowed: {channels} channels of the input for each group, and a "
            "multiple of groups of filters"
        )
    if bias is not None and bias.shape != (filters,):
        raise OperandError(f"conv2d: bias has shape {list(bias.shape)}; allowed: [{filters}], one a filter")


def _padding(padding: int | str | Sequence[int], kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Zeros on the left, right, top and bottom."""
    if padding == "valid":
        return [0, 0, 0, 0]
    if padding == "same":
        sums = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return [sums[1] // 2, sums[1] - sums[1] // 2, sums[0] // 2, sums[0] - sums[0] // 2]
    if isinstance(padding, str):
        raise OperandError(f"conv2d: padding is {padding!r}; allowed: 'valid', 'same', an int or two")
    down, across = _pair("padding", padding, 0)
    return [across, across, down, down]


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    fidelity: MathFidelity = MathFidelity.HiFi4,
    accumulate: DataFormat | None = None,
    mode: str = "fast",
    out_format: DataFormat | None = None,
    chip: str = "wormhole_b0",
    k_block: int | None = None,
    l1_accumulate: bool = False,
) -> Tensor:
    """Return a convolution, which is a matmul of windows, as the chip's matrix unit computes it.

    Args:
        input: activations (SrcB), [N, C, H, W] or [C, H, W].
        weight: (SrcA), [O, C / groups, kH, kW].
        bias: [O], added in float32 before the sum's last rounding; in ``"silicon"`` as elements are (ELWADD).
        stride, padding, dilation, groups: as in :func:`torch.nn.functional.conv2d`.
        fidelity, accumulate, mode, out_format, chip, k_block, l1_accumulate: as in :func:`matmul`; products
            go over the channels, then the rows and columns of the window.

    Returns:
        [N, O, H', W'] or [O, H', W'], of the dtype of `input`.

    Raises:
        FormatError, OperandError: as :func:`matmul`.
    """
    input = check_floats("conv2d", input, "input")
    weight = check_floats("conv2d", weight, "weight")
    how = _checked(
        "conv2d", input, weight, fidelity, accumulate, mode, out_format, chip, k_block, l1_accumulate
    )
    if weight.dim() != 4 or input.dim() not in (3, 4):
        raise OperandError(
            f"conv2d: input and weight have shapes {list(input.shape)} and {list(weight.shape)}; allowed: "
            "[N, C, H, W] or [C, H, W], and [O, C / groups, kH, kW]"
        )
    if bias is not None:
        bias = check_floats("conv2d", bias, "bias")
    stride, dilation = _pair("stride", stride, 1), _pair("dilation", dilation, 1)
    if padding == "same" and stride != [1, 1]:
        raise OperandError(f"conv2d: padding is 'same', which needs a stride of 1, not {stride}")
    _check_channels(input, weight, bias, groups)
    pads = _padding(padding, weight.shape[2:], dilation)
    if how.silicon or pads[0] != pads[1] or pads[2] != pads[3]:
        input, pads = functional.pad(input, pads), [0, 0, 0, 0]
    if how.silicon:
        return silicon_products.convolution(input, weight, bias, stride, dilation, groups, how)
    batched = input if input.dim() == 4 else input.unsqueeze(0)
    result: Tensor = ops.convolution(
        batched,
        weight,
        bias,
        stride,
        [pads[2], pads[0]],
        dilation,
        False,
        [0, 0],
        groups,
        how.fidelity,
        how.accumulate.value,
        how.out_format,
    )
    return result if input.dim() == 4 else result.squeeze(0)
