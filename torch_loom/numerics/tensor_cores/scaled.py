"""Products of operands with scales under :class:`TensorCores`: ``_scaled_mm`` and ``scaled_mm``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_loom.errors import FormatError, OperandError
from torch_loom.numerics import _fits
from torch_loom.numerics.tensor_cores.block_formats import blocks_of_operand
from torch_loom.numerics.tensor_cores.matmuls import Handler, check, into

if TYPE_CHECKING:
    from torch_loom.numerics.tensor_cores.emulation import TensorCores

aten = torch.ops.aten
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_NARROW = (*_FLOAT8, torch.float4_e2m1fn_x2)
# How scaled_mm says what scales belong to (torch.nn.functional.ScalingType), and their order.
_TENSOR, _ROWS, _BLOCKS_OF_16, _BLOCKS_OF_32 = range(4)
_RECIPES = ("TensorWise", "RowWise", "BlockWise1x16", "BlockWise1x32", "BlockWise1x128", "BlockWise128x128")
_ALLOWED = (
    "TensorWise or RowWise float32 scales; BlockWise1x32 of float8_e8m0fnu, or BlockWise1x16 of "
    "float8_e4m3fn with or without a TensorWise one, swizzled 32_4_4"
)
_SWIZZLED = 1


def _finished(
    sums: Tensor, bias: Tensor | None, scale_result: Tensor | None, dtype: torch.dtype, op: str
) -> Tensor:
    if bias is not None:
        sums = sums + bias.float()
    if scale_result is not None:
        if dtype not in _FLOAT8:
            raise OperandError(
                f"{op}: scale_result with a result of {dtype}; allowed: results of "
                f"{', '.join(map(str, _FLOAT8))}, which cuBLAS multiplies with it"
            )
        sums = sums * scale_result
    return sums.to(dtype)


def _are_scales(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> bool:
    """Whether float32 scales are those of the tensors, or of rows and columns."""
    rows = ((a.shape[0], 1), (1, b.shape[1]))
    return scale_a.numel() == scale_b.numel() == 1 or (tuple(scale_a.shape), tuple(scale_b.shape)) == rows


def _is_bias(bias: Tensor | None, b: Tensor) -> bool:
    return bias is None or (bias.dim() == 1 and bias.shape[0] == b.shape[1])


def _check_shapes(op: str, a: Tensor, b: Tensor, bias: Tensor | None) -> None:
    """Refuse operands with scales of blocks, which PyTorch multiplies on GPUs alone."""
    if not _fits.matrices(a, b) or a.dtype != b.dtype or not _is_bias(bias, b):
        told = "" if bias is None else f" and a bias of {list(bias.shape)}"
        raise OperandError(
            f"{op}: operands of {a.dtype} {list(a.shape)} and {b.dtype} {list(b.shape)}{told}; allowed: "
            "[M, K] and [K, N] of one dtype, and a bias of N"
        )


def _scaled_mm(
    mode: TensorCores,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Any:
    has_floats = scale_a.dtype is torch.float32 and scale_b.dtype is torch.float32
    if has_floats or a.dtype not in _NARROW or b.dtype not in _NARROW:
        check(_fits.matrices(a, b) and _are_scales(a, b, scale_a, scale_b))
        check(a.dtype in _FLOAT8 and b.dtype in _FLOAT8 and _is_bias(bias, b))
        sums = mode.product(a, b, op="_scaled_mm", fast_sums=use_fast_accum) * (scale_a * scale_b)
    else:
        _check_shapes("_scaled_mm", a, b, bias)
        sums = mode.blocks_product(blocks_of_operand(a, scale_a), blocks_of_operand(b.t(), scale_b))
    return _finished(sums, bias, scale_result, out_dtype or a.dtype, "_scaled_mm")


def _scaled_mm_by_recipes(
    mode: TensorCores,
    a: Tensor,
    b: Tensor,
    scale_a: list[Tensor],
    recipe_a: list[int],
    swizzle_a: list[int],
    scale_b: list[Tensor],
    recipe_b: list[int],
    swizzle_b: list[int],
    bias: Tensor | None,
    out_dtype: torch.dtype | None,
    contraction_dim: list[int] | tuple[()] = (),
    use_fast_accum: bool = False,
) -> Any:
    kinds = {tuple(recipe_a), tuple(recipe_b)}
    if contraction_dim and list(contraction_dim) not in ([1, 0], [-1, 0], [-1, -2], [1, -2]):
        raise _refused(recipe_a, recipe_b, f"contraction_dim {list(contraction_dim)}")
    if kinds <= {(_TENSOR,), (_ROWS,)}:
        check(_fits.matrices(a, b) and _is_bias(bias, b))
        sums = mode.product(a, b, op="scaled_mm", fast_sums=use_fast_accum)
        left, right = scale_a[0], scale_b[0]
        if recipe_a[0] == _ROWS:
            left = left.reshape(-1, 1)
        if recipe_b[0] == _ROWS:
            right = right.reshape(1, -1)
        return _finished(sums * (left * right), bias, None, out_dtype or a.dtype, "scaled_mm")
    if len(kinds) == 1 and kinds <= {(_BLOCKS_OF_32,), (_BLOCKS_OF_16,), (_BLOCKS_OF_16, _TENSOR)}:
        swizzles = (swizzle_a[:1], swizzle_b[:1])
        if any(list(each) != [_SWIZZLED] for each in swizzles):
            raise _refused(recipe_a, recipe_b, "scales in rows")
        _check_shapes("scaled_mm", a, b, bias)
        sums = mode.blocks_product(blocks_of_operand(a, scale_a[0]), blocks_of_operand(b.t(), scale_b[0]))
        if len(scale_a) == 2:
            sums = sums * (scale_a[1] * scale_b[1])
        return _finished(sums, bias, None, out_dtype or torch.bfloat16, "scaled_mm")
    raise _refused(recipe_a, recipe_b)


def _refused(recipe_a: list[int], recipe_b: list[int], what: str = "") -> FormatError:
    def named(recipes: list[int]) -> str:
        return " and ".join(_RECIPES[each] if each < len(_RECIPES) else str(each) for each in recipes)

    return FormatError(
        f"scaled_mm: no rule for scales {named(recipe_a)} with {named(recipe_b)}"
        f"{f', {what}' if what else ''}; allowed: {_ALLOWED}"
    )


def _no_rule(op: str) -> Handler:
    def refuse(mode: TensorCores, *args: Any, **kwargs: Any) -> Any:
        raise FormatError(
            f"{op}: no rule on {mode.chip}, whose library multiplies groups in an order that is not known; "
            "allowed: _scaled_mm, a group at a time, or leaving tensor_core for this call"
        )

    return refuse


HANDLERS: dict[Any, Handler] = {
    aten._scaled_mm.default: _scaled_mm,
    aten._scaled_mm.out: into(_scaled_mm),
}
for _name, _handler in (
    ("_scaled_mm_v2", _scaled_mm_by_recipes),
    ("_scaled_grouped_mm", _no_rule("_scaled_grouped_mm")),
    ("_scaled_grouped_mm_v2", _no_rule("scaled_grouped_mm")),
):
    if hasattr(aten, _name):  # what the version of PyTorch has
        _packet = getattr(aten, _name)
        HANDLERS[_packet.default] = _handler
        if "out" in _packet.overloads():
            HANDLERS[_packet.out] = into(_handler)
