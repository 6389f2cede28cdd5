"""Products with math fidelity: what the matrix unit of a Tensix chip computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.errors import OperandError
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
    has_blocks,
    silicon_mode,
    without_blocks,
)
from torch_loom.numerics.formats import DataFormat, ExponentFamily, MathFidelity


@dataclass(frozen=True)
class _Product:
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
) -> _Product:
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
    how = _Product(fidelity.value, accumulate, silicon, out)
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
        return _silicon_convolution(input, weight, bias, stride, dilation, groups, how)
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


def silicon_sum(sums: Tensor, bias: Tensor, fidelity: int, accumulate: DataFormat, silicon: int) -> Tensor:
    """A product and its bias, which the matrix unit adds as it adds elements."""
    if accumulate is DataFormat.Int32:
        whole: Tensor = ops.quantize(sums + bias, accumulate.value)
        return whole
    added: Tensor = ops.elementwise(sums, bias, 1, fidelity, accumulate.value, without_blocks(silicon))
    return added


def _silicon_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    dilation: list[int],
    groups: int,
    how: _Product,
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
        result = silicon_sum(result, bias, how.fidelity, how.accumulate, how.silicon)
    if how.out_format != NONE:
        result = ops.quantize(result, how.out_format)
    return result if input.dim() == rank + 2 else result.squeeze(0)


def _silicon_transposed(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    output_padding: list[int],
    groups: int,
    how: _Product,
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
    return _silicon_convolution(spread, turned, bias, [1] * rank, dilation, groups, how)
