"""Functions of PyTorch that are products: each as the ops of ``loom_numerics`` compute it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import functional

from torch_loom.numerics import _fits, silicon_products
from torch_loom.numerics._ops import NONE, ops
from torch_loom.numerics._silicon import has_blocks
from torch_loom.numerics.emulation.bilinear import bilinear_function, bilinear_layer, einsum
from torch_loom.numerics.emulation.matmul import NOT_TAKEN, UNFIT, Handler, fidelity_of, matmul
from torch_loom.numerics.emulation.operands import format_of, is_float, mark, operand, operands, pass_mark
from torch_loom.numerics.emulation.precision import Precision
from torch_loom.numerics.emulation.rules import BILINEAR
from torch_loom.numerics.formats import DataFormat, MathFidelity

if TYPE_CHECKING:
    from torch_loom.numerics.emulation.mode import Emulation


def _matmul(fits: Callable[[Tensor, Tensor], bool] | None = None) -> Handler:
    """A product of operands that `fits` allows: of any, for matmul."""

    def handle(emulation: Emulation, how: Precision, out: DataFormat, a: Any, b: Any, **kwargs: Any) -> Any:
        if kwargs or not (is_float(a) and is_float(b)):
            return NOT_TAKEN
        if fits is not None and not fits(a, b):
            return UNFIT
        return matmul(emulation, how, out, a, b)

    return handle


def _added_matmul(fits: Callable[[Tensor, Tensor], bool]) -> Handler:
    """``beta * self + alpha * (a @ b)``: addmm, addmv, baddbmm."""

    def handle(
        emulation: Emulation,
        how: Precision,
        out: DataFormat,
        self: Any,
        a: Any,
        b: Any,
        *,
        beta: float = 1,
        alpha: float = 1,
    ) -> Any:
        if not fits(a, b) or not _fits.expands(self, (*a.shape[:-1], *b.shape[a.dim() - 1 :])):
            return UNFIT
        sums = matmul(emulation, how, None, a, b)
        return sums * alpha + operand(self, how, emulation.weights) * beta

    return handle


_added_matrices = _added_matmul(_fits.matrices)


def _addbmm(
    emulation: Emulation, how: Precision, out: DataFormat, self: Any, a: Any, b: Any, **kwargs: Any
) -> Any:
    if not _fits.batches(a, b):
        return UNFIT
    # One matmul over the batch and the inner dimension.
    rows = a.transpose(0, 1).flatten(1, 2)
    return _added_matrices(emulation, how, out, self, rows, b.flatten(0, 1), **kwargs)


def _linear(
    emulation: Emulation, how: Precision, out: DataFormat, input: Any, weight: Any, bias: Any = None
) -> Any:
    input = operand(input, how, emulation.weights, exact=True)
    weight = operand(weight, how, emulation.weights, exact=True)
    bias = operand(bias, how, emulation.weights)
    if not how.silicon:
        result: Tensor = ops.linear(
            input, weight, bias, fidelity_of(how), how.accumulate.value, out.value, how.format.value
        )
        return mark(result, out)
    # Between blocks of K, sums of 16 bits wait in the result's format, and for the bias, too.
    waits = has_blocks(how.silicon) and how.accumulate is not DataFormat.Float32
    right = pass_mark(weight.transpose(-2, -1), weight) if weight.dim() > 1 else weight
    sums = matmul(emulation, how, out if waits or bias is None else None, input, right)
    if bias is None:
        return sums
    return silicon_products.with_bias(sums, bias, fidelity_of(how), how.accumulate, how.silicon)


def _sizes(value: int | list[int] | tuple[int, ...], count: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


def _convolution(dimensions: int, *, transposed: bool = False) -> Handler:
    def handle(
        emulation: Emulation,
        how: Precision,
        out: DataFormat,
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        output_padding: Any = 0,
    ) -> Any:
        if input.dim() not in (dimensions + 1, dimensions + 2) or weight.dim() != dimensions + 2:
            return UNFIT
        input = operand(input, how, emulation.weights, exact=True)
        weight = operand(weight, how, emulation.weights, exact=True)
        bias = operand(bias, how, emulation.weights)
        stride, dilation, after = (_sizes(each, dimensions) for each in (stride, dilation, output_padding))
        if isinstance(padding, str):
            if padding != "valid" and (padding != "same" or set(stride) != {1}):
                return UNFIT
            input, padding = _padded(input, padding, weight.shape[2:], dilation)
        padding = _sizes(padding, dimensions)
        batched = input if input.dim() == dimensions + 2 else input.unsqueeze(0)
        if not _fits.is_convolution(
            batched, weight, bias, stride, padding, dilation, transposed, after, groups
        ):
            return UNFIT
        if how.silicon:
            unit = silicon_products.Product(how.fidelity.value, how.accumulate, how.silicon, NONE)
            if unit.has_blocks:
                unit = replace(unit, waiting=how.made(out))
            if transposed:
                result = silicon_products.transposed_convolution(
                    batched, weight, bias, stride, padding, dilation, after, groups, unit
                )
            else:
                edges = [size for size in reversed(padding) for _ in range(2)]
                whole = functional.pad(batched, edges)
                result = silicon_products.convolution(whole, weight, bias, stride, dilation, groups, unit)
        else:
            result = ops.convolution(
                batched, weight, bias, stride, padding, dilation, transposed, after, groups,
                fidelity_of(how), how.accumulate.value, how.made(out), how.made(how.format),
            )  # fmt: skip
            mark(result, out)
        return result if input.dim() == dimensions + 2 else pass_mark(result.squeeze(0), result)

    return handle


def _transposed(dimensions: int) -> Handler:
    handle = _convolution(dimensions, transposed=True)

    def call(
        emulation: Emulation, how: Precision, out: DataFormat, input: Any, weight: Any, bias: Any = None,
        stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
    ) -> Any:  # fmt: skip
        return handle(
            emulation, how, out, input, weight, bias, stride, padding, dilation, groups, output_padding
        )

    return call


def _padded(input: Tensor, padding: str, kernel: Any, dilation: list[int]) -> tuple[Tensor, int]:
    if padding == "valid":
        return input, 0
    pads: list[int] = []
    for size, step in zip(reversed(kernel), reversed(dilation), strict=True):
        total = step * (size - 1)
        pads += [total // 2, total - total // 2]
    return functional.pad(input, pads), 0


def multiply(emulation: Emulation, how: Precision, a: Any, b: Any) -> Any:
    """Elementwise: operand 0 is SrcA, operand 1 SrcB. A number of Python's is exact."""
    left, right = operands((a, b), how, emulation.weights)
    is_whole = how.fits and not how.silicon
    if not (is_float(left) and is_float(right)) or (is_whole and _is_in(left, right, how.format)):
        return left * right
    fidelity = how.fidelity.value
    product = ops.operand(left, 1, fidelity) * ops.operand(right, 0, fidelity)
    if how.fidelity is MathFidelity.HiFi3:
        product = product + ops.operand(left, 1, fidelity, True) * ops.operand(right, 0, fidelity, True)
    return product


def _is_in(left: Tensor, right: Tensor, fmt: DataFormat) -> bool:
    return format_of(left) is fmt and format_of(right) is fmt


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("matmul", "__matmul__"), _matmul()),
    "mm": _matmul(_fits.matrices),
    "bmm": _matmul(_fits.batches),
    "mv": _matmul(_fits.vector),
    "dot": _matmul(_fits.vectors),
    "addmm": _added_matrices,
    "addmv": _added_matmul(_fits.vector),
    "baddbmm": _added_matmul(_fits.batches),
    "addbmm": _addbmm,
    "linear": _linear,
    "einsum": einsum,
    "bilinear": bilinear_layer,
    "conv1d": _convolution(1),
    "conv2d": _convolution(2),
    "conv3d": _convolution(3),
    "conv_transpose1d": _transposed(1),
    "conv_transpose2d": _transposed(2),
    "conv_transpose3d": _transposed(3),
}


def handler_of(func: Any, name: str) -> Handler | None:
    """What computes a function that is a product; None: it is none."""
    if name in BILINEAR:
        return bilinear_function(func, name)
    return HANDLERS.get(name)
