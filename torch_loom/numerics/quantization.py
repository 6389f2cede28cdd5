"""Values of tensors in a data format: converting, packing, and what a format could not hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torch_loom.errors import OperandError, PackedDataError
from torch_loom.numerics._checks import check_floats, check_format, check_tensor
from torch_loom.numerics._ops import ops
from torch_loom.numerics._silicon import check_rule, converted
from torch_loom.numerics.formats import BLOCK_ELEMENTS, DataFormat

# Where quantize() leaves the counts of a result: (int64 [2] on its device, version of the result).
_COUNTS = "_loom_nonfinite"


class Nonfinite(NamedTuple):
    """What a conversion met that its format cannot hold."""

    values: int
    """Infinities and NaNs that became other values: all in integer formats and Lf8; infinities in block
    formats and Float16, and NaNs in Float16, which stay NaN in the tensor but have no code on the chip."""
    blocks: int
    """Blocks of 16 that a NaN made NaN."""


def quantize(t: Tensor, fmt: DataFormat, *, rule: str = "pybuda", out: Tensor | None = None) -> Tensor:
    """Return the values of `t` in a data format; the gradient goes straight through.

    Args:
        t: any shape, stride and floating-point dtype; wider ones are rounded to float32 first. Integers where
            `fmt` is an integer format. Blocks of block formats lie along the last dimension.
        fmt: the format.
        rule: whose conversion: ``"pybuda"``, halves away from zero; ``"host"``, tt-metal's of weights, halves
            to even; ``"packer"``, what a Wormhole or Blackhole chip writes of a 16-bit destination, and
            ``"packer_precise"`` with all its bits; ``"unpacker"``, what its registers read. docs/numerics.md.
        out: a tensor of the dtype of `t` to write to, resized where its shape differs.

    Returns:
        A tensor with the shape, dtype and device of `t`. Values that its dtype cannot hold are rounded to it.

    Raises:
        FormatError: `fmt` is no format that values can have, or none that the rule makes.
        OperandError: `t` has no such values.
    """
    fmt = check_format("quantize", fmt)
    t = check_floats("quantize", t, fmt=fmt)
    number = converted(fmt, check_rule("quantize", rule, fmt))
    if out is not None:
        if check_tensor("quantize", out, "out").dtype != t.dtype:
            raise OperandError(f"quantize: out is a {out.dtype} tensor; allowed: {t.dtype}, the dtype of t")
        torch.ops.loom_numerics.quantize.out(t, number, out=out)
        return out
    if torch.compiler.is_compiling():
        traced: Tensor = ops.quantize(t, number)
        return traced
    result: Tensor
    result, counts = ops.quantize_counted(t, number)
    if not result.is_inference():
        setattr(result, _COUNTS, (counts, result._version))
    return result


def quantize_(t: Tensor, fmt: DataFormat) -> Tensor:
    """Convert `t` in place, see :func:`quantize`; returns `t`."""
    fmt = check_format("quantize_", fmt)
    t = check_floats("quantize_", t, fmt=fmt)
    ops.quantize_(t, fmt.value)
    return t


def nonfinite(t: Tensor) -> Nonfinite:
    """Return what the conversion that made `t` met and its format cannot hold. Waits for `t`'s device.

    Args:
        t: a result of :func:`quantize`. Of any other tensor the infinities and NaNs in it are counted, and
            the blocks along the last dimension that have a NaN.
    """
    t = check_tensor("nonfinite", t)
    kept = getattr(t, _COUNTS, None)
    if kept is not None and kept[1] == t._version:
        values, blocks = kept[0].tolist()
        return Nonfinite(values, blocks)
    if not t.is_floating_point() or t.numel() == 0:
        return Nonfinite(0, 0)
    rows = t.detach().reshape(-1, t.shape[-1] if t.dim() else 1)
    padding = -rows.shape[1] % BLOCK_ELEMENTS
    has_nan = (
        torch.nn.functional.pad(rows.isnan(), (0, padding)).view(rows.shape[0], -1, BLOCK_ELEMENTS).any(-1)
    )
    return Nonfinite(int((~rows.isfinite()).sum()), int(has_nan.sum()))


def nonfinite_total(*, reset: bool = False) -> Nonfinite:
    """Return the counts of all conversions of this process, those under :func:`emulate` among them.

    Args:
        reset: begin again from zero, and warn again of the next value that a format cannot hold.
    """
    values, blocks = ops._totals(reset)
    return Nonfinite(values, blocks)


def _sizes(op: str, shape: Sequence[int]) -> list[int]:
    if (
        isinstance(shape, str | bytes)
        or not isinstance(shape, Sequence)
        or not all(isinstance(size, int | torch.SymInt) for size in shape)
    ):
        raise OperandError(f"{op}: shape is {shape!r}; allowed: the sizes of the tensor, whole numbers")
    return list(shape)


def num_tiles(shape: Sequence[int]) -> int:
    """Return how many tiles of 32 x 32 elements a tensor of this shape packs into.

    Raises:
        OperandError: `shape` is none.
    """
    shape = _sizes("num_tiles", shape)
    *leading, rows, columns = [1, 1, *shape][-max(2, len(shape)) :]
    return math.prod(leading) * -(-rows // 32) * -(-columns // 32)


def pack(t: Tensor, fmt: DataFormat) -> Tensor:
    """Return a tensor as the bytes of tiles in a format, converting its values to it.

    Args:
        t: as for :func:`quantize`. Its last two dimensions are cut into tiles of 32 x 32, in rows of tiles;
            the last ones are padded with zeros. Tensors of fewer dimensions are one row.
        fmt: the format.

    Returns:
        uint8 [number of tiles, ``fmt.bytes_per_tile``]: docs/numerics.md says what lies where in a tile.

    Raises:
        FormatError: `fmt` is no format that values can have.
        OperandError: `t` has no such values.
        PackedDataError: a value is NaN, and `fmt` is Lf8, which has no code for it.
    """
    fmt = check_format("pack", fmt)
    t = check_floats("pack", t, fmt=fmt)
    try:
        result: Tensor = ops.pack(t, fmt.value)
    except ValueError as error:
        raise PackedDataError(str(error)) from None
    return result


def unpack(tiles: Tensor, fmt: DataFormat, shape: Sequence[int]) -> Tensor:
    """Return the tensor that :func:`pack` made tiles of.

    Args:
        tiles: uint8, as many bytes as ``pack`` makes of a tensor of `shape`, in any shape.
        fmt: the format.
        shape: the tensor's shape.

    Returns:
        float32 [shape].

    Raises:
        FormatError: `fmt` is no format that values can have.
        OperandError: `tiles` are no bytes, or `shape` is none.
        PackedDataError: the bytes are not those of tiles of this format and shape.
    """
    fmt = check_format("unpack", fmt)
    tiles = check_tensor("unpack", tiles, "tiles")
    if tiles.dtype is not torch.uint8:
        raise OperandError(f"unpack: tiles is a {tiles.dtype} tensor; allowed: torch.uint8")
    shape = _sizes("unpack", shape)
    if any(size < 0 for size in shape):
        raise PackedDataError(f"unpack: the shape {shape} has a negative size")
    count = num_tiles(shape)
    if not torch.compiler.is_compiling() and tiles.numel() != count * fmt.bytes_per_tile:
        raise PackedDataError(
            f"unpack: {tiles.numel()} bytes, shape {list(tiles.shape)}, where a tensor of shape {shape} has "
            f"{count} {fmt.name} tiles of {fmt.bytes_per_tile} bytes, {count * fmt.bytes_per_tile} in all"
        )
    try:
        result: Tensor = ops.unpack(tiles, fmt.value, shape)
    except ValueError as error:
        raise PackedDataError(str(error)) from None
    return result
