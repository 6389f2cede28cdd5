"""Shapes, layout and dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.compiler.onnx.axes import from_start
from torch_loom.compiler.onnx.table import Float, Int, Ints, Number, op
from torch_loom.errors import OnnxError


@op("Reshape")
def reshape(x: Tensor, shape: Ints, *, allowzero: Int = 0) -> Tensor:
    """Reshape; a 0 keeps the size of that dimension unless ``allowzero``."""
    if allowzero:
        return x.reshape(list(shape))
    return x.reshape(
        [x.shape[at] if type(size) is int and size == 0 else size for at, size in enumerate(shape)]
    )


@op("Flatten")
def flatten(x: Tensor, *, axis: Int = 1) -> Tensor:
    """Make a matrix: the axes before one, and those from it on."""
    at = axis + x.dim() if axis < 0 else axis
    rows = 1
    for size in x.shape[:at]:
        rows = rows * size
    if x.numel() and at == 1:
        return x.flatten(1) if x.dim() > 1 else x.reshape(rows, 1)
    columns = 1
    for size in x.shape[at:]:
        columns = columns * size
    return x.reshape(rows, columns)


@op("Squeeze")
def squeeze(x: Tensor, axes: Ints | None = None) -> Tensor:
    """Drop dimensions of size 1; each that is named must be one.

    Raises:
        ValueError: an axis is not of size 1.
    """
    if axes is None:
        return x.squeeze()
    if any(x.shape[axis] != 1 for axis in axes):
        raise ValueError(f"Squeeze of axes {list(axes)}: the shape is {tuple(x.shape)}")
    return x.squeeze(tuple(axes))


@op("Unsqueeze")
def unsqueeze(x: Tensor, axes: Ints) -> Tensor:
    """Add dimensions of size 1 at places of the result."""
    rank = x.dim() + len(axes)
    for axis in sorted(from_start(axis, rank) for axis in axes):
        x = x.unsqueeze(axis)
    return x


@op("Transpose")
def transpose(x: Tensor, *, perm: Ints | None = None) -> Tensor:
    """Permute dimensions; without an order, reverse them."""
    return x.permute(list(perm) if perm is not None else list(reversed(range(x.dim()))))


@op("Concat")
def concat(*values: Tensor, axis: Int = 1) -> Tensor:
    """Concatenate along an axis."""
    return torch.cat(values, axis)


@op("Split")
def split(x: Tensor, split: Ints | None = None, *, axis: Int = 0, num_outputs: int = 1) -> tuple[Tensor, ...]:
    """Split along an axis: by sizes, or in equal parts with a smaller last one."""
    if split:
        return torch.split(x, list(split), axis)
    return torch.split(x, -(-x.shape[axis] // num_outputs), axis)


@op("Slice")
def slices(
    x: Tensor, starts: Ints, ends: Ints, axes: Ints | None = None, steps: Ints | None = None
) -> Tensor:
    """Take ranges; a negative step runs backwards."""
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = axes[number] if axes is not None else number
        step = steps[number] if steps is not None else 1
        if step > 0:
            x = x[(slice(None),) * from_start(axis, x.dim()) + (slice(start, end, step),)]
        else:
            x = _backwards(x, axis, start, end, step)
    return x


def _backwards(x: Tensor, axis: int, start: int, end: int, step: int) -> Tensor:
    places = range(*slice(start, end if end > -(2**31) else None, step).indices(x.shape[axis]))
    if not places:
        return x.narrow(axis, 0, 0)
    part = x.narrow(axis, places[-1], places[0] - places[-1] + 1).flip(axis)
    return part[(slice(None),) * from_start(axis, x.dim()) + (slice(None, None, -step),)]


@op("Expand")
def expand(x: Tensor, shape: Ints) -> Tensor:
    """Broadcast to a shape; where that has a 1, the tensor's size stays."""
    shape, own = list(shape), list(x.shape)
    width = max(len(shape), len(own))
    shape, own = [1] * (width - len(shape)) + shape, [1] * (width - len(own)) + own
    wanted = [a if type(b) is int and b == 1 else b for a, b in zip(own, shape, strict=True)]
    return x.expand(wanted)


@op("Tile", since=6)
def tile(x: Tensor, repeats: Ints) -> Tensor:
    """Repeat along each axis."""
    return x.repeat(list(repeats)) if repeats else x


@op("Pad")
def pad(
    x: Tensor,
    pads: Ints,
    value: Number | None = None,
    axes: Ints | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    """Pad at begins and ends; a negative number crops.

    Raises:
        ValueError: a mode that there is not.
    """
    named = list(range(x.dim())) if axes is None else [from_start(axis, x.dim()) for axis in axes]
    begins, ends = [0] * x.dim(), [0] * x.dim()
    for number, axis in enumerate(named):
        begins[axis], ends[axis] = pads[number], pads[number + len(named)]
    if mode == "constant":
        fill = value.item() if isinstance(value, Tensor) else 0 if value is None else value
        both = [side for axis in reversed(range(x.dim())) for side in (begins[axis], ends[axis])]
        return functional.pad(x, both, value=fill) if x.dim() else x
    for axis, (before, after) in enumerate(zip(begins, ends, strict=True)):
        if before or after:
            x = x.index_select(axis, _places(mode, x.shape[axis], before, after, x.device))
    return x


def _places(mode: str, size: int, before: int, after: int, device: torch.device) -> Tensor:
    at = torch.arange(-before, size + after, device=device)
    if mode == "edge":
        return at.clamp(0, size - 1)
    if mode == "wrap":
        return at % size
    if mode != "reflect":
        raise ValueError(f"Pad has the modes constant, edge, reflect and wrap, not {mode!r}")
    period = max(2 * (size - 1), 1)
    at = at % period
    return torch.where(at < size, at, period - at)


@op("Shape")
def shape_of(x: Tensor, *, start: Int = 0, end: Int | None = None) -> Tensor:
    """The shape as a tensor."""
    return torch.tensor(list(x.shape[slice(start, end)]), dtype=torch.int64, device=x.device)


@op("Size")
def size_of(x: Tensor) -> Tensor:
    """The number of elements as a tensor."""
    return torch.tensor(x.numel(), dtype=torch.int64, device=x.device)


@op("Cast")
def cast(x: Tensor, *, to: torch.dtype, saturate: Int = 1, round_mode: str = "up") -> Tensor:
    """Convert; to 8-bit floats with their largest value in the place of what is beyond, where ``saturate``.

    Integers that do not hold a value have none that ONNX defines; what PyTorch makes of it is returned.

    Raises:
        OnnxError: to 8-bit floats by rules that PyTorch does not have.
    """
    if to.is_floating_point and to.itemsize == 1:
        if not saturate or to is torch.float8_e8m0fnu:
            raise OnnxError(f"Cast to {to} is read with saturate=1 alone, and not to float8_e8m0fnu")
        # NaN stays; infinities become the largest value.
        limit = torch.finfo(to).max
        x = torch.where(torch.isnan(x), x, x.clamp(-limit, limit))
    return x.to(to)


@op("CastLike")
def cast_like(x: Tensor, target: Tensor, *, saturate: Int = 1, round_mode: str = "up") -> Tensor:
    """Convert to another tensor's dtype."""
    return cast(x, to=target.dtype, saturate=saturate)


@op("BitCast")
def bit_cast(x: Tensor, *, to: torch.dtype) -> Tensor:
    """Read the same bits as another dtype."""
    return x.view(to)


@op("ConstantOfShape")
def constant_of_shape(shape: Ints, *, value: Tensor | None = None, like: Tensor | None = None) -> Tensor:
    """A tensor of one value, float32 zeros by default."""
    dtype, fill = (torch.float32, 0.0) if value is None else (value.dtype, value.reshape(()).item())
    return torch.full(list(shape), fill, dtype=dtype, device=None if like is None else like.device)


@op("Range")
def arange(
    start: Number,
    limit: Number,
    delta: Number,
    *,
    like: Tensor | None = None,
    numbers_dtype: torch.dtype | None = None,
) -> Tensor:
    """Numbers from one to another by steps."""
    given = [each for each in (start, limit, delta) if isinstance(each, Tensor)]
    numbers = [each.item() if isinstance(each, Tensor) else each for each in (start, limit, delta)]
    device = given[0].device if given else None if like is None else like.device
    return torch.arange(*numbers, dtype=given[0].dtype if given else numbers_dtype, device=device)


@op("EyeLike")
def eye_like(x: Tensor, *, dtype: torch.dtype | None = None, k: Int = 0) -> Tensor:
    """Ones on a diagonal, in the shape of a matrix."""
    rows, columns = x.shape
    at = torch.arange(columns, device=x.device) - torch.arange(rows, device=x.device).unsqueeze(1)
    return (at == k).to(x.dtype if dtype is None else dtype)


@op("Trilu")
def trilu(x: Tensor, k: Int | None = None, *, upper: Int = 1) -> Tensor:
    """The upper or lower triangle of matrices."""
    return (torch.triu if upper else torch.tril)(x, 0 if k is None else k)


@op("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: Int, mode: str = "DCR") -> Tensor:
    """Move channels into blocks of the plane."""
    if mode == "CRD":
        return functional.pixel_shuffle(x, blocksize)
    batch, channels, height, width = x.shape
    parts = x.reshape(batch, blocksize, blocksize, channels // blocksize**2, height, width)
    return parts.permute(0, 3, 4, 1, 5, 2).reshape(
        batch, channels // blocksize**2, height * blocksize, width * blocksize
    )


@op("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: Int, mode: str = "DCR") -> Tensor:
    """Move blocks of the plane into channels."""
    if mode == "CRD":
        return functional.pixel_unshuffle(x, blocksize)
    batch, channels, height, width = x.shape
    parts = x.reshape(batch, channels, height // blocksize, blocksize, width // blocksize, blocksize)
    return parts.permute(0, 3, 5, 1, 2, 4).reshape(
        batch, channels * blocksize**2, height // blocksize, width // blocksize
    )


@op("Constant")
def constant(
    *,
    value: Tensor | None = None,
    value_float: Float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: Int | None = None,
    value_ints: Sequence[int] | None = None,
) -> Tensor:
    """A constant."""
    if value is not None:
        return value
    numbers: Any = value_floats if value_float is None else value_float
    if numbers is not None:
        return torch.tensor(numbers, dtype=torch.float32)
    return torch.tensor(value_ints if value_int is None else value_int, dtype=torch.int64)
