"""Constants, resizing, embeddings, queues, quantisation."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.execution import trace
from torch_loom.pybuda.op.apply import apply
from torch_loom.pybuda.tensor import Tensor

Torch = Any  # a torch.Tensor; several of its methods have no types
_METHODS = {
    "nearest_neighbor": {2: "nearest", 3: "nearest"},
    "linear": {2: "bilinear", 3: "trilinear"},
    "bilinear": {2: "bilinear", 3: "trilinear"},
    "cubic": {2: "bicubic"},
}


def Constant(name: str, *, constant: float) -> Tensor:
    """A constant of one element, which broadcasts to any shape."""
    made: Tensor = apply(
        "constant",
        name,
        (),
        lambda: torch.full((1,), float(constant), device=trace.device()),
        {"constant": constant},
    )
    made.constant = True
    return made


def _resize(
    num_dims: int,
    name: str,
    a: Any,
    sizes: Any,
    method: str,
    align_corners: bool,
    extrapolation_value: int,
    channel_last: bool,
) -> Tensor:
    def run(x: Torch) -> Torch:
        mode = _METHODS.get(method, {}).get(num_dims)
        if mode is None:
            raise PyBudaError(f"method {method!r} is none of {', '.join(_METHODS)}")
        x = x.movedim(-1, -1 - num_dims) if channel_last else x
        corners = None if mode == "nearest" else align_corners
        resized = functional.interpolate(x, list(sizes), mode=mode, align_corners=corners)
        return resized.movedim(-1 - num_dims, -1) if channel_last else resized

    attributes = {
        "sizes": tuple(sizes),
        "method": method,
        "align_corners": align_corners,
        "extrapolation_value": extrapolation_value,
        "channel_last": channel_last,
    }
    made: Tensor = apply(f"resize{num_dims}d", name, (a,), run, attributes)
    return made


def Resize2d(
    name: str,
    operandA: Any,
    sizes: Any,
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    extrapolation_value: int = 0,
    channel_last: bool = False,
) -> Tensor:
    """Resize images (N, C, H, W) to ``sizes`` = (H, W); no point lies outside, so nothing is extrapolated."""
    return _resize(2, name, operandA, sizes, method, align_corners, extrapolation_value, channel_last)


def Resize3d(
    name: str,
    operandA: Any,
    sizes: Any,
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    extrapolation_value: int = 0,
    channel_last: bool = False,
) -> Tensor:
    """Resize volumes (N, C, D, H, W) to ``sizes`` = (D, H, W)."""
    return _resize(3, name, operandA, sizes, method, align_corners, extrapolation_value, channel_last)


def Embedding(name: str, embedding_table: Any, indices: Any) -> Tensor:
    """Rows of a table, those that the indices count."""

    def run(table: Torch, at: Torch) -> Torch:
        return functional.embedding(at.long(), table)

    made: Tensor = apply("embedding", name, (embedding_table, indices), run)
    return made


def DRAMQueue(name: str, operandA: Any, *, num_entries: int) -> Tensor:
    """The operand, which passes a queue of ``num_entries`` in the chip's memory."""
    if num_entries < 1:
        raise PyBudaError(f"DRAMQueue {name!r}: num_entries is {num_entries}; it is 1 or more")
    made: Tensor = apply(
        "dram_queue", name, (operandA,), lambda x: x.view_as(x), {"num_entries": num_entries}
    )
    return made


def _along(value: Torch, axis: int, num_dims: int) -> Torch:
    if value.numel() == 1:
        return value.reshape(())
    shape = [1] * num_dims
    shape[axis] = -1
    return value.reshape(shape)


def _rounded(x: Torch, dtype: torch.dtype) -> Torch:
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        x = torch.clamp(torch.round(x), info.min, info.max)
    return x.to(dtype)


def Quantize(
    name: str, operandA: Any, scale: Any, zero_point: Any, axis: int = 0, out_dtype: torch.dtype = torch.int8
) -> Tensor:
    """``x / scale + zero_point`` rounded to an integer type; one scale, or one per slice of the axis."""

    def run(x: Torch, by: Torch, zero: Torch) -> Torch:
        by, zero = _along(by, axis, x.dim()), _along(zero, axis, x.dim())
        return _rounded(torch.round(x / by) + zero, out_dtype)

    attributes = {"axis": axis, "out_dtype": out_dtype}
    made: Tensor = apply("quantize", name, (operandA, scale, zero_point), run, attributes)
    return made


def Dequantize(
    name: str,
    operandA: Any,
    scale: Any,
    zero_point: Any,
    axis: int = 0,
    out_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """``(x - zero_point) * scale``, the inverse of Quantize."""

    def run(x: Torch, by: Torch, zero: Torch) -> Torch:
        by, zero = _along(by, axis, x.dim()), _along(zero, axis, x.dim())
        return ((x.to(by.dtype) - zero) * by).to(out_dtype)

    attributes = {"axis": axis, "out_dtype": out_dtype}
    made: Tensor = apply("dequantize", name, (operandA, scale, zero_point), run, attributes)
    return made


def Requantize(
    name: str,
    operandA: Any,
    input_scale: Any,
    input_zero_point: Any,
    output_scale: Any,
    output_zero_point: Any,
    input_axis: int = 0,
    output_axis: int = 0,
    out_dtype: torch.dtype = torch.int8,
) -> Tensor:
    """Quantised values under another scale and zero point."""

    def run(x: Torch, scale: Torch, zero: Torch, new_scale: Torch, new_zero: Torch) -> Torch:
        dims = x.dim()
        real = (x.to(scale.dtype) - _along(zero, input_axis, dims)) * _along(scale, input_axis, dims)
        scaled = torch.round(real / _along(new_scale, output_axis, dims))
        return _rounded(scaled + _along(new_zero, output_axis, dims), out_dtype)

    operands = (operandA, input_scale, input_zero_point, output_scale, output_zero_point)
    attributes = {"input_axis": input_axis, "output_axis": output_axis, "out_dtype": out_dtype}
    made: Tensor = apply("requantize", name, operands, run, attributes)
    return made


def BudaRequantize(
    name: str,
    operandA: Any,
    scale: Any,
    zero_point: Any = 0.0,
    axis: int = 0,
    out_dtype: torch.dtype = torch.int8,
) -> Tensor:
    """Values of Int32 sums times a scale, plus a zero point, as an integer type: a chip's one op."""

    def run(x: Torch, by: Torch, zero: Torch) -> Torch:
        by = _along(by.to(torch.float32), axis, x.dim())
        return _rounded(torch.round(x * by) + _along(zero, axis, x.dim()), out_dtype)

    attributes = {"axis": axis, "out_dtype": out_dtype}
    made: Tensor = apply("buda_requantize", name, (operandA, scale, zero_point), run, attributes)
    return made
