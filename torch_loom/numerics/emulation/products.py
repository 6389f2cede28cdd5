"""Functions of PyTorch that are products: each as the ops of ``loom_numerics`` compute it.

A handler takes the emulation, the precision, the format of the result and the function's own arguments.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.numerics import _fits
from torch_loom.numerics._ops import NONE, WHOLE, ops
from torch_loom.numerics._silicon import has_blocks
from torch_loom.numerics.emulation.operands import format_of, is_float, mark, operand, operands, pass_mark
from torch_loom.numerics.emulation.precision import Precision
from torch_loom.numerics.emulation.rules import BILINEAR, MULTIPLICATIONS
from torch_loom.numerics.formats import DataFormat, MathFidelity
from torch_loom.numerics.products import _Product, _silicon_convolution, _silicon_transposed, silicon_sum

if TYPE_CHECKING:
    from torch_loom.numerics.emulation.mode import Emulation

Handler = Callable[..., Any]
# What a handler returns for arguments that it does not take: the function is then computed as any other.
NOT_TAKEN = object()
# For arguments that PyTorch refuses, where the ops of ``loom_numerics`` would not.
UNFIT = object()


def fidelity_of(how: Precision) -> int:
    """The fidelity of sums of products as the ops take it."""
    how = how.summed
    return WHOLE if how.fits and not how.silicon else how.fidelity.value


def matmul(emulation: Emulation, how: Precision, out: DataFormat | None, a: Tensor, b: Tensor) -> Tensor:
    a = operand(a, how, emulation.weights, exact=True)
    b = operand(b, how, emulation.weights, exact=True)
    out_format = NONE if out is None else how.made(out)
    result: Tensor = ops.matmul(
        a, b, fidelity_of(how), how.accumulate.value, how.silicon, out_format, how.made(how.format)
    )
    return result if out is None else mark(result, out)


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
    return silicon_sum(sums, bias, fidelity_of(how), how.accumulate, how.silicon)


def _bilinear(emulation: Emulation, how: Precision, *given: Any, call: Handler) -> Any:
    """A function linear in both of two operands (given: of SrcB, of SrcA), over their masked values."""
    b, a = (operand(each, how, emulation.weights, exact=True) for each in given)
    fidelity = fidelity_of(how)
    if fidelity == WHOLE:
        sums = call(b, a)
    else:
        sums = call(ops.operand(b, 0, fidelity), ops.operand(a, 1, fidelity))
        if fidelity == MathFidelity.HiFi3.value:
            sums = sums + call(ops.operand(b, 0, fidelity, True), ops.operand(a, 1, fidelity, True))
    return ops.quantize(sums, how.made(how.accumulate), NONE, NONE)


def _named_bilinear(func: Any, name: str) -> Handler:
    first, second = BILINEAR[name]

    def handle(emulation: Emulation, how: Precision, out: DataFormat, *args: Any, **kwargs: Any) -> Any:
        if len(args) < 2 or not (is_float(args[0]) and is_float(args[1])):
            return NOT_TAKEN

        if how.silicon:
            value = _silicon_bilinear(emulation, how, out, name, args, kwargs)
            if value is not NOT_TAKEN:
                return value

        def call(b: Tensor, a: Tensor) -> Any:
            given = list(args)
            given[first], given[second] = b, a
            return func(*given, **kwargs)

        return _bilinear(emulation, how, args[first], args[second], call=call)

    return handle


def _einsum(emulation: Emulation, how: Precision, out: DataFormat, equation: Any, *given: Any) -> Any:
    if len(given) == 1 and isinstance(given[0], list | tuple):
        given = tuple(given[0])
    if len(given) != 2 or not isinstance(equation, str) or not all(is_float(each) for each in given):
        return NOT_TAKEN
    if how.silicon:
        value = _silicon_einsum(emulation, how, out, equation, *given)
        if value is not NOT_TAKEN:
            return value
    return _bilinear(emulation, how, *given, call=lambda b, a: torch.einsum(equation, b, a))


def _silicon_einsum(
    emulation: Emulation, how: Precision, out: DataFormat, equation: str, b: Tensor, a: Tensor
) -> Any:
    """A sum of products over letters that both operands have, as one batched matmul; others are warned of."""
    inputs, arrow, letters = equation.replace(" ", "").partition("->")
    left, _, right = inputs.partition(",")
    is_plain = (
        arrow and "." not in inputs and all(len(set(each)) == len(each) for each in (left, right, letters))
    )
    summed = [each for each in left if each in right and each not in letters]
    alone = [each for each in left + right if each not in letters and each not in summed]
    if len(left) != b.dim() or len(right) != a.dim() or not set(letters) <= set(left + right):
        return NOT_TAKEN  # PyTorch refuses it in its own words
    of_left = dict(zip(left, b.shape, strict=True))
    is_one_size = all(of_left.get(each, size) == size for each, size in zip(right, a.shape, strict=True))
    if not is_plain or alone or not summed or not is_one_size or not b.numel() or not a.numel():
        _warn_of_fast_sums("einsum", f" of {equation!r}")
        return NOT_TAKEN
    batch = [each for each in left if each in right and each in letters]
    rows = [each for each in left if each not in right]
    columns = [each for each in right if each not in left]
    sizes = {**of_left, **dict(zip(right, a.shape, strict=True))}
    first = b.permute([left.index(each) for each in [*batch, *rows, *summed]])
    second = a.permute([right.index(each) for each in [*batch, *summed, *columns]])

    def count(names: list[str]) -> int:
        return math.prod(sizes[each] for each in names)

    shape = [sizes[each] for each in batch]
    product = matmul(
        emulation,
        how,
        out,
        pass_mark(first.reshape(*shape, count(rows), count(summed)), b),
        pass_mark(second.reshape(*shape, count(summed), count(columns)), a),
    )
    made = product.reshape([sizes[each] for each in [*batch, *rows, *columns]])
    order = [*batch, *rows, *columns]
    return pass_mark(made.permute([order.index(each) for each in letters]), product)


# Each place is one product: nothing is summed.
_WITHOUT_SUMS = ("outer", "ger", "kron")


def _silicon_bilinear(
    emulation: Emulation,
    how: Precision,
    out: DataFormat,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    b, a = (args[place] for place in BILINEAR[name])
    rest = args[2:]
    if name in _WITHOUT_SUMS or not b.numel() or not a.numel():
        return NOT_TAKEN
    if name == "__rmatmul__" or (name == "vdot" and b.dim() == a.dim() == 1):
        return matmul(emulation, how, out, b, a)
    if name == "inner" and not kwargs and b.dim() and a.dim() and b.shape[-1] == a.shape[-1]:
        rows = b.reshape(-1, b.shape[-1])
        product = matmul(emulation, how, out, rows, a.reshape(-1, a.shape[-1]).transpose(0, 1))
        return pass_mark(product.reshape(*b.shape[:-1], *a.shape[:-1]), product)
    dims = rest[0] if rest else kwargs.get("dims", 2)
    is_number = isinstance(dims, int) and 0 < dims <= min(b.dim(), a.dim())
    if name == "tensordot" and is_number and b.shape[b.dim() - dims :] == a.shape[:dims]:
        rows = b.reshape(-1, math.prod(b.shape[b.dim() - dims :]))
        product = matmul(emulation, how, out, rows, a.reshape(rows.shape[1], -1))
        return pass_mark(product.reshape((*b.shape[: b.dim() - dims], *a.shape[dims:])), product)
    _warn_of_fast_sums(name, "")
    return NOT_TAKEN


_told: set[str] = set()


def _warn_of_fast_sums(name: str, what: str) -> None:
    if torch.compiler.is_compiling() or name in _told:
        return
    _told.add(name)
    warnings.warn(
        f"{name}{what}: mode 'silicon' has no rule for it, and its sums are those of 'fast'; matmul, linear, "
        "convolutions, inner, einsum over dimensions of both operands, and tensordot with a number of "
        "dimensions have; said once",
        stacklevel=2,
    )


def _bilinear_layer(
    emulation: Emulation,
    how: Precision,
    out: DataFormat,
    left: Any,
    right: Any,
    weight: Any,
    bias: Any = None,
) -> Any:
    is_one = left.shape[:-1] == right.shape[:-1] and weight.dim() == 3
    if not is_one or weight.shape[1:] != (left.shape[-1], right.shape[-1]):
        return UNFIT
    if bias is not None and bias.shape != weight.shape[:1]:
        return UNFIT
    # x1 · W first, then with x2: each a product of its own.
    weight = operand(weight, how, emulation.weights)
    if how.silicon:
        count, rows, columns = weight.shape
        flat = weight.permute(1, 0, 2).reshape(rows, count * columns)
        product = matmul(emulation, how, how.format, left, pass_mark(flat, weight))
        half = pass_mark(product.reshape(*left.shape[:-1], count, columns), product)
        result = matmul(emulation, how, how.format, half, right.unsqueeze(-1)).squeeze(-1)
        return result if bias is None else result + operand(bias, how, emulation.weights)
    half = _bilinear(emulation, how, left, weight, call=lambda b, a: torch.einsum("...i,oij->...oj", b, a))
    half = ops.quantize(half, how.made(how.format), NONE, how.made(how.format))
    result = _bilinear(emulation, how, half, right, call=lambda b, a: torch.einsum("...oj,...j->...o", b, a))
    return result if bias is None else result + operand(bias, how, emulation.weights)


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
            unit = _Product(how.fidelity.value, how.accumulate, how.silicon, NONE)
            if unit.has_blocks:
                unit = replace(unit, waiting=how.made(out))
            if transposed:
                result = _silicon_transposed(
                    batched, weight, bias, stride, padding, dilation, after, groups, unit
                )
            else:
                edges = [size for size in reversed(padding) for _ in range(2)]
                whole = functional.pad(batched, edges)
                result = _silicon_convolution(whole, weight, bias, stride, dilation, groups, unit)
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
    "einsum": _einsum,
    "bilinear": _bilinear_layer,
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
        return _named_bilinear(func, name)
    return HANDLERS.get(name)


def is_product(func: Any, name: str) -> bool:
    """Whether fidelity decides the values of a function."""
    return name in MULTIPLICATIONS or handler_of(func, name) is not None
