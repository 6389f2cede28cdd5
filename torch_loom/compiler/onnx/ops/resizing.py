"""Resizing and sampling of planes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.compiler.onnx.axes import from_start
from torch_loom.compiler.onnx.table import Float, Floats, Int, Ints, op
from torch_loom.errors import OnnxError

MAX_PLACES = 1 << 20
"""Along an axis: each is computed in Python."""


@op("Resize", since=11)
def resize(
    x: Tensor,
    roi: Floats | None = None,
    scales: Floats | None = None,
    sizes: Ints | None = None,
    *,
    antialias: Int = 0,
    axes: Ints | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: Float = -0.75,
    exclude_outside: Int = 0,
    extrapolation_value: Float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    """Resize along axes, by scales or to sizes."""
    named = list(range(x.dim())) if axes is None else [from_start(axis, x.dim()) for axis in axes]
    own = [x.shape[axis] for axis in named]
    if scales:
        if not all(0 < scale < math.inf for scale in scales):
            raise OnnxError(f"Resize takes scales that are greater than 0, and it is given {list(scales)}")
        wanted = [math.floor(size * scale) for size, scale in zip(own, scales, strict=True)]
        factors = list(scales)
    else:
        wanted = list(sizes or own)
        factors = [new / size for new, size in zip(wanted, own, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            factor = (min if keep_aspect_ratio_policy == "not_larger" else max)(factors)
            factors = [factor] * len(own)
            wanted = [math.floor(factor * size + 0.5) for size in own]
    if not all(0 <= size <= MAX_PLACES for size in wanted):
        raise OnnxError(f"Resize makes sizes of 0 to {MAX_PLACES:,}, and {wanted} are asked for")
    for number, axis in enumerate(named):
        if factors[number] == 1.0 and wanted[number] == own[number] and not roi:
            continue
        size = own[number]
        bounds = (roi[number], roi[number + len(named)]) if roi else (0.0, 1.0)
        at = _coordinates(wanted[number], size, factors[number], coordinate_transformation_mode, bounds)
        outside = [not 0 <= each <= size - 1 for each in at]
        if mode == "nearest":
            places = torch.tensor([_nearest(each, size, nearest_mode) for each in at], device=x.device)
            x = x.index_select(axis, places)
        else:
            width = min(factors[number], 1.0) if antialias else 1.0
            rows = [_weights(each, size, mode, cubic_coeff_a, bool(exclude_outside), width) for each in at]
            matrix = torch.tensor(rows, dtype=torch.float64).to(x.device, x.dtype)
            x = (x.transpose(axis, -1) @ matrix.mT).transpose(axis, -1)
        if coordinate_transformation_mode == "tf_crop_and_resize" and any(outside):
            shape = [1] * x.dim()
            shape[axis] = len(outside)
            x = x.masked_fill(torch.tensor(outside, device=x.device).reshape(shape), extrapolation_value)
    return x


@op("Resize")
def resize_by_scales(x: Tensor, scales: Floats, *, mode: str = "nearest") -> Tensor:
    """Resize by scales, as before version 11."""
    return upsample(x, scales, mode=mode)


@op("Upsample")
def upsample(x: Tensor, scales: Floats, *, mode: str = "nearest") -> Tensor:
    """Enlarge by scales."""
    return resize(
        x,
        None,
        scales,
        coordinate_transformation_mode="asymmetric",
        mode=mode,
        nearest_mode="floor",
    )


def _coordinates(num: int, size: int, scale: float, mode: str, bounds: tuple[float, float]) -> list[float]:
    """Return where in the input each place of the output lies.

    Raises:
        ValueError: a mode that there is not.
    """
    places = range(num)
    if mode == "asymmetric":
        return [at / scale for at in places]
    if mode in ("half_pixel", "pytorch_half_pixel"):
        if mode == "pytorch_half_pixel" and num == 1:
            return [0.0]
        return [(at + 0.5) / scale - 0.5 for at in places]
    if mode == "half_pixel_symmetric":
        offset = size / 2 * (1 - num / (scale * size))
        return [offset + (at + 0.5) / scale - 0.5 for at in places]
    if mode == "align_corners":
        # By the size before it was rounded down.
        return [0.0 if num == 1 else at * (size - 1) / (scale * size - 1) for at in places]
    if mode != "tf_crop_and_resize":
        raise ValueError(f"Resize has no coordinate_transformation_mode {mode!r}")
    low, high = bounds
    if num == 1:
        return [0.5 * (low + high) * (size - 1)]
    return [low * (size - 1) + at * (high - low) * (size - 1) / (num - 1) for at in places]


def _nearest(at: float, size: int, mode: str) -> int:
    rounded = {
        "round_prefer_floor": math.ceil(at - 0.5),
        "round_prefer_ceil": math.floor(at + 0.5),
        "floor": math.floor(at),
        "ceil": math.ceil(at),
    }[mode]
    return min(max(rounded, 0), size - 1)


def _weights(
    at: float, size: int, mode: str, cubic: float, exclude_outside: bool, width: float
) -> list[float]:
    """Return the share of each place of the input; a small width spreads the filter over more of them."""
    reach = (1 if mode == "linear" else 2) / width
    first, last = math.floor(at - reach) + 1, math.ceil(at + reach)
    shares = {
        place: _filter((at - place) * width, mode, cubic) for place in range(first, max(last, first + 1))
    }
    if exclude_outside:
        shares = {place: share for place, share in shares.items() if 0 <= place < size}
    total = math.fsum(shares.values())
    row = [0.0] * size
    for place, share in shares.items():
        row[min(max(place, 0), size - 1)] += share / total
    return row


def _filter(distance: float, mode: str, a: float) -> float:
    far = abs(distance)
    if mode == "linear":
        return max(1 - far, 0.0)
    if far <= 1:
        return ((a + 2) * far - (a + 3)) * far**2 + 1
    return ((a * far - 5 * a) * far + 8 * a) * far - 4 * a if far < 2 else 0.0


_MODES = {"linear": "bilinear", "cubic": "bicubic"}


@op("GridSample")
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: Int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    """Sample planes or volumes at coordinates from -1 to 1."""
    name = _MODES.get(mode, mode)
    return functional.grid_sample(
        x, grid, mode=name, padding_mode=padding_mode, align_corners=bool(align_corners)
    )


@op("AffineGrid")
def affine_grid(theta: Tensor, size: Ints, *, align_corners: Int = 0) -> Tensor:
    """Coordinates of a plane or volume under affine maps."""
    return functional.affine_grid(theta, list(size), bool(align_corners))


@op("Col2Im")
def col2im(
    x: Tensor,
    image_shape: Ints,
    block_shape: Ints,
    *,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """Add columns up to images: the reverse of taking windows.

    Raises:
        ValueError: PyTorch has it for planes with equal pads only.
    """
    rank = len(block_shape)
    padding = list(pads or [0] * 2 * rank)
    if rank != 2 or padding[:2] != padding[2:]:
        raise ValueError("Col2Im is read for planes whose pads are equal at both ends")
    pairs = [
        tuple(each)
        for each in (image_shape, block_shape, dilations or (1, 1), padding[:2], strides or (1, 1))
    ]
    return functional.fold(x, *pairs)


@op("CenterCropPad")
def center_crop_pad(x: Tensor, shape: Ints, *, axes: Ints | None = None) -> Tensor:
    """Crop or pad around the centre."""
    named: Sequence[int] = list(range(x.dim())) if axes is None else axes
    for axis, wanted in zip(named, shape, strict=True):
        size = x.shape[axis]
        if wanted < size:
            x = x.narrow(axis, (size - wanted) // 2, wanted)
        elif wanted > size:
            before = (wanted - size) // 2
            sides = [0] * (2 * x.dim())
            at = 2 * (x.dim() - 1 - from_start(axis, x.dim()))
            sides[at], sides[at + 1] = before, wanted - size - before
            x = functional.pad(x, sides)
    return x
