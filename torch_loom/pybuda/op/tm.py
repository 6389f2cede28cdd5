"""Ops that move elements and compute nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.op.apply import apply
from torch_loom.pybuda.tensor import TILE, Tensor

Torch = Any  # a torch.Tensor; several of its methods have no types


def _tm(op_type: str, name: str, operands: tuple[Any, ...], compute: Any, **attributes: Any) -> Tensor:
    made: Tensor = apply(op_type, name, operands, compute, attributes)
    return made


def _at_least_3d(x: Torch) -> Torch:
    return x.reshape((1,) * (3 - x.dim()) + tuple(x.shape)) if x.dim() < 3 else x


def _pieces(size: int, number: int, what: str) -> int:
    if number < 1 or size % number:
        raise PyBudaError(f"{what} has size {size}, which {number} does not divide")
    return size // number


def HSlice(name: str, operandA: Any, slices: int) -> Tensor:
    """Cut columns into pieces along z: (…, z, r, c) becomes (…, z·n, r, c/n), the pieces of a z together."""

    def run(x: Torch) -> Torch:
        x = _at_least_3d(x)
        width = _pieces(x.shape[-1], slices, "the last dimension")
        parts = x.unflatten(-1, (slices, width)).movedim(-2, -3)
        return parts.flatten(-4, -3)

    return _tm("hslice", name, (operandA,), run, slices=slices)


def HStack(name: str, operandA: Any, slices: int = -1) -> Tensor:
    """The inverse of HSlice; all of z if ``slices`` is not given."""

    def run(x: Torch) -> Torch:
        x = _at_least_3d(x)
        number = x.shape[-3] if slices == -1 else slices
        outer = _pieces(x.shape[-3], number, "z")
        return x.unflatten(-3, (outer, number)).movedim(-3, -2).flatten(-2, -1)

    return _tm("hstack", name, (operandA,), run, slices=slices)


def VSlice(name: str, operandA: Any, slices: int) -> Tensor:
    """Cut rows into pieces along z: (…, z, r, c) becomes (…, z·n, r/n, c)."""

    def run(x: Torch) -> Torch:
        x = _at_least_3d(x)
        height = _pieces(x.shape[-2], slices, "the second last dimension")
        return x.unflatten(-2, (slices, height)).flatten(-4, -3)

    return _tm("vslice", name, (operandA,), run, slices=slices)


def VStack(name: str, operandA: Any, slices: int = -1) -> Tensor:
    """The inverse of VSlice; all of z if ``slices`` is not given."""

    def run(x: Torch) -> Torch:
        x = _at_least_3d(x)
        number = x.shape[-3] if slices == -1 else slices
        outer = _pieces(x.shape[-3], number, "z")
        return x.unflatten(-3, (outer, number)).flatten(-3, -2)

    return _tm("vstack", name, (operandA,), run, slices=slices)


def Transpose(
    name: str,
    operandA: Any,
    dim0: int,
    dim1: int,
    z_dim_slice: int = -1,
    out_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Swap two dimensions.

    ``z_dim_slice`` says how large z becomes, which follows from the operand; values do not depend on it.
    Another ``out_dtype`` than the default converts the result.
    """

    def run(x: Torch) -> Torch:
        moved = x.transpose(dim0, dim1)
        return moved if out_dtype is torch.float32 else moved.to(out_dtype)

    attributes = {"dim0": dim0, "dim1": dim1, "z_dim_slice": z_dim_slice, "out_dtype": out_dtype}
    return _tm("transpose", name, (operandA,), run, **attributes)


def Reshape(name: str, operandA: Any, shape: tuple[int, ...]) -> Tensor:
    """The same elements in another shape; one size may be -1."""
    return _tm("reshape", name, (operandA,), lambda x: x.reshape(tuple(shape)), shape=tuple(shape))


def Index(name: str, operandA: Any, dim: int, start: int, stop: int | None = None, stride: int = 1) -> Tensor:
    """Elements ``start`` to ``stop`` (exclusive) in steps along a dimension; one element without ``stop``."""

    def run(x: Torch) -> Torch:
        size = x.shape[dim]
        first = start + size if start < 0 else start
        last = first + 1 if stop is None else stop + size if stop < 0 else stop
        if stride < 1:
            raise PyBudaError(f"stride is {stride}; it is 1 or more")
        if not 0 <= first < last <= size:
            raise PyBudaError(f"[{start}, {stop}) is not within the {size} elements of dimension {dim}")
        place = dim % x.dim()
        return x[(slice(None),) * place + (slice(first, last, stride),)]

    return _tm("index", name, (operandA,), run, dim=dim, start=start, stop=stop, stride=stride)


def Select(name: str, operandA: Any, dim: int, index: int | tuple[int, int], stride: int = 0) -> Tensor:
    """Of each window of ``stride`` elements along a dimension (0: all of it) the elements at ``index``.

    ``index`` is a place, or (start, length); what is past the end is zero.
    """
    start, length = (index, 1) if isinstance(index, int) else index

    def run(x: Torch) -> Torch:
        size = x.shape[dim]
        window = stride or size
        begin = start + window if start < 0 else start
        if window < 1 or not 0 <= begin < size or length < 1:
            raise PyBudaError(f"index {index} with stride {stride} does not fit {size} elements")
        place = dim % x.dim()
        missing = max(0, ((size - 1) // window) * window + begin + length - size)
        if missing:
            zeros = x.new_zeros([*x.shape[:place], missing, *x.shape[place + 1 :]])
            x = torch.cat((x, zeros), place)
        parts = [x.narrow(place, at + begin, length) for at in range(0, size, window)]
        return torch.cat(parts, place)

    return _tm("select", name, (operandA,), run, dim=dim, index=index, stride=stride)


def Pad(
    name: str, operandA: Any, pad: tuple[int, ...], mode: str = "constant", channel_last: bool = False
) -> Tensor:
    """Pad columns (left, right), or columns and rows (left, right, top, bottom).

    ``mode`` is ``constant`` (zeros), ``replicate`` or ``reflect``; with ``channel_last`` the operand is
    (N, H, W, C).
    """

    def run(x: Torch) -> Torch:
        if len(pad) not in (2, 4):
            raise PyBudaError(f"pad has {len(pad)} values; it is (left, right) or (left, right, top, bottom)")
        if mode not in ("constant", "replicate", "reflect"):
            raise PyBudaError(f"mode {mode!r} is none of 'constant', 'replicate', 'reflect'")
        x = x.movedim(-1, -3) if channel_last else x
        padded = _padded(x, tuple(pad), mode)
        return padded.movedim(-3, -1) if channel_last else padded

    return _tm("pad", name, (operandA,), run, pad=tuple(pad), mode=mode, channel_last=channel_last)


def _padded(x: Torch, pad: tuple[int, ...], mode: str) -> Torch:
    if mode == "constant":
        return functional.pad(x, pad)
    # PyTorch pads a batch of images; other numbers of dimensions are made one.
    four = (*pad, 0, 0)[:4]
    flat = x.reshape(1, -1, *x.shape[-2:]) if x.dim() > 1 else x.reshape(1, 1, 1, -1)
    padded = functional.pad(flat, four, mode=mode)
    return padded.reshape(*x.shape[:-2], *padded.shape[-2:]) if x.dim() > 1 else padded.reshape(-1)


def AdvIndex(name: str, operandA: Any, operandB: Any, dim: int = 0) -> Tensor:
    """Slices along a dimension, those that the second operand counts."""

    def run(x: Torch, at: Torch) -> Torch:
        place = dim % x.dim()
        chosen = x.index_select(place, at.flatten().long())
        return chosen.unflatten(place, at.shape) if at.dim() > 1 else chosen

    return _tm("adv_index", name, (operandA, operandB), run, dim=dim)


def PadTile(name: str, operandA: Any, dim: int, original_length: int) -> Tensor:
    """Pad a dimension with zeros up to whole tiles of 32; ``original_length`` is its size before."""

    def run(x: Torch) -> Torch:
        if x.shape[dim] != original_length:
            raise PyBudaError(f"dimension {dim} has {x.shape[dim]} elements, not {original_length}")
        place, missing = dim % x.dim(), -original_length % TILE
        zeros = x.new_zeros([*x.shape[:place], missing, *x.shape[place + 1 :]])
        return torch.cat((x, zeros), place)

    return _tm("pad_tile", name, (operandA,), run, dim=dim, original_length=original_length)


def Broadcast(name: str, operandA: Any, dim: int, shape: int) -> Tensor:
    """Repeat a dimension of size one ``shape`` times."""

    def run(x: Torch) -> Torch:
        if x.shape[dim] != 1:
            raise PyBudaError(f"dimension {dim} has {x.shape[dim]} elements; only one can be broadcast")
        sizes = [-1] * x.dim()
        sizes[dim] = shape
        return x.expand(sizes)

    return _tm("broadcast", name, (operandA,), run, dim=dim, shape=shape)


def Repeat(name: str, operandA: Any, factors: list[int]) -> Tensor:
    """Repeat the operand along each dimension, as ``torch.Tensor.repeat``."""
    return _tm("repeat", name, (operandA,), lambda x: x.repeat(*factors), factors=list(factors))


def Unsqueeze(name: str, operandA: Any, dim: int) -> Tensor:
    """Insert a dimension of size one."""
    return _tm("unsqueeze", name, (operandA,), lambda x: x.unsqueeze(dim), dim=dim)


def Squeeze(name: str, operandA: Any, dim: int) -> Tensor:
    """Remove a dimension of size one."""

    def run(x: Torch) -> Torch:
        if x.shape[dim] != 1:
            raise PyBudaError(f"dimension {dim} has {x.shape[dim]} elements; only one can be removed")
        return x.squeeze(dim)

    return _tm("squeeze", name, (operandA,), run, dim=dim)


def Narrow(name: str, operandA: Any, dim: int, start: int, length: int, original_length: int) -> Tensor:
    """``length`` elements from ``start`` along a dimension of ``original_length`` elements before padding."""

    def run(x: Torch) -> Torch:
        if not 0 < original_length <= x.shape[dim]:
            raise PyBudaError(f"dimension {dim} has {x.shape[dim]} elements, not {original_length} or more")
        return x.narrow(dim, start, length)

    return _tm(
        "narrow", name, (operandA,), run, dim=dim, start=start, length=length, original_length=original_length
    )


def PixelShuffle(name: str, operandA: Any, upscale_factor: int) -> Tensor:
    """Channels to pixels: (N, C·f², H, W) becomes (N, C, H·f, W·f)."""
    return _tm(
        "pixel_shuffle",
        name,
        (operandA,),
        lambda x: functional.pixel_shuffle(x, upscale_factor),
        upscale_factor=upscale_factor,
    )


def BudaPad(name: str, operandA: Any, paddings: tuple[int, int], value: float) -> Tensor:
    """Fill rows and columns up to whole tiles, then add ``paddings`` tiles of rows and columns."""

    def run(x: Torch) -> Torch:
        rows, columns = (-x.shape[-2 + k] % TILE + paddings[k] * TILE for k in (0, 1))
        return functional.pad(x, (0, columns, 0, rows), value=value)

    return _tm("buda_pad", name, (operandA,), run, paddings=tuple(paddings), value=value)


def BudaUnpad(
    name: str, operandA: Any, original_length: tuple[int, int], paddings: tuple[int, int]
) -> Tensor:
    """The inverse of BudaPad: rows and columns cut to ``original_length``."""

    def run(x: Torch) -> Torch:
        for k in (0, 1):
            padded = original_length[k] + -original_length[k] % TILE + paddings[k] * TILE
            if x.shape[-2 + k] != padded:
                raise PyBudaError(f"shape {tuple(x.shape)} is not {original_length} padded by {paddings}")
        return x[..., : original_length[0], : original_length[1]]

    return _tm(
        "buda_unpad",
        name,
        (operandA,),
        run,
        original_length=tuple(original_length),
        paddings=tuple(paddings),
    )
