"""Functions linear in each of two operands: einsum, tensordot, outer, bilinear layers and the like."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_loom.numerics._ops import NONE, WHOLE, ops
from torch_loom.numerics.emulation.matmul import NOT_TAKEN, UNFIT, Handler, fidelity_of, matmul
from torch_loom.numerics.emulation.operands import is_float, operand, pass_mark
from torch_loom.numerics.emulation.precision import Precision
from torch_loom.numerics.emulation.rules import BILINEAR
from torch_loom.numerics.formats import DataFormat, MathFidelity

if TYPE_CHECKING:
    from torch_loom.numerics.emulation.mode import Emulation


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


def bilinear_function(func: Any, name: str) -> Handler:
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


def einsum(emulation: Emulation, how: Precision, out: DataFormat, equation: Any, *given: Any) -> Any:
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


def bilinear_layer(
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
