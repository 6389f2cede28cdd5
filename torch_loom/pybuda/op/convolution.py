"""Convolutions: activations (N, C, …), or with the channel last."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.op.apply import apply
from torch_loom.pybuda.tensor import Tensor

Torch = Any  # a torch.Tensor; several of its methods have no types
Sizes = int | str | list[int] | tuple[int, ...]


def _convolve(
    op_type: str,
    name: str,
    given: tuple[Any, Any, Any],
    compute: Any,
    num_dims: int,
    channel_last: bool,
    attributes: dict[str, Any],
) -> Tensor:
    """Run a convolution: `compute(x, weights, bias)` with the channel in front and the weights whole."""
    activations, weights, bias = given
    parts = list(weights) if isinstance(weights, (list, tuple)) else [weights]
    is_split = isinstance(weights, (list, tuple))
    operands = (activations, *parts, *([] if bias is None else [bias]))

    def run(x: Torch, *rest: Torch) -> Torch:
        weight = _whole(rest[: len(parts)]) if is_split else rest[0]
        flat_bias = rest[-1].flatten() if bias is not None else None
        x = x.movedim(-1, -1 - num_dims) if channel_last else x
        is_integer = x.dtype is torch.int8 and weight.dtype is torch.int8
        wide = torch.int32 if is_integer else x.dtype
        if flat_bias is not None:
            flat_bias = flat_bias.to(wide)
        result: Torch = compute(x.to(wide), weight.to(wide), flat_bias)
        return result.movedim(-1 - num_dims, -1) if channel_last else result

    made: Tensor = apply(op_type, name, operands, run, {**attributes, "channel_last": channel_last})
    return made


def _whole(parts: tuple[Torch, ...]) -> Torch:
    """Weights (Cout, Cin, K, K) of parts (grouping, Cin, Cout) that count the places of the kernel."""
    places: Torch = torch.cat(parts)
    size = round(places.shape[0] ** 0.5)
    if size * size != places.shape[0]:
        raise PyBudaError(f"pre-split weights have {places.shape[0]} places, which is no square kernel")
    whole: Torch = places.permute(2, 1, 0)
    return whole.unflatten(-1, (size, size))


def padding_of(padding: Sizes, kernel: tuple[int, ...]) -> list[int]:
    """Return what `functional.pad` takes, last dimension first.

    `same` is half of the kernel on each side, and one less at the end where the kernel is even.
    """
    if isinstance(padding, str):
        if padding != "same":
            raise PyBudaError(f"padding {padding!r} is neither 'same' nor numbers")
        return [part for size in reversed(kernel) for part in (size // 2, (size - 1) // 2)]
    if isinstance(padding, int):
        return [padding] * (2 * len(kernel))
    if len(padding) == 2 * len(kernel):
        return list(padding)  # left, right, top, bottom
    if len(padding) == len(kernel):
        return [size for size in reversed(padding) for _ in range(2)]
    raise PyBudaError(f"padding {padding} has neither {len(kernel)} nor {2 * len(kernel)} values")


def _padded(x: Torch, padding: Sizes, weight: Torch, num_dims: int) -> tuple[Torch, tuple[int, ...]]:
    """The activations, and the symmetric padding that is left to the convolution itself."""
    values = padding_of(padding, tuple(weight.shape[-num_dims:]))
    low, high = values[::2], values[1::2]
    if low == high and min(values) >= 0:
        return x, tuple(reversed(low))
    return functional.pad(x, values), (0,) * num_dims


def Conv2d(
    name: str,
    activations: Any,
    weights: Any,
    bias: Any | None = None,
    stride: Any = 1,
    padding: Any = "same",
    dilation: Any = 1,
    groups: int = 1,
    channel_last: bool = False,
) -> Tensor:
    """Convolution of images (N, Cin, H, W) with weights (Cout, Cin/groups, kH, kW).

    Weights may also be a list of (grouping, Cin/groups, Cout) that lists the places of a square kernel.
    ``padding`` is ``same`` (half of the kernel on each side), a number, (rows, columns), or
    (left, right, top, bottom).
    """

    def run(x: Torch, weight: Torch, flat_bias: Torch | None) -> Torch:
        x, rest = _padded(x, padding, weight, 2)
        return functional.conv2d(x, weight, flat_bias, stride, rest, dilation, groups)

    attributes = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _convolve("conv2d", name, (activations, weights, bias), run, 2, channel_last, attributes)


def Conv2dTranspose(
    name: str,
    activations: Any,
    weights: Any,
    bias: Any | None = None,
    stride: Any = 1,
    padding: Any = "same",
    dilation: Any = 1,
    groups: int = 1,
    channel_last: bool = False,
    output_padding: Any = 0,
) -> Tensor:
    """Transposed convolution of images (N, Cin, H, W).

    Weights are PyTorch's (Cin, Cout/groups, kH, kW); the documented (Cout, Cin/groups, kH, kW) are taken
    where only these fit. Padding as for Conv2d; ``output_padding`` rows and columns are added at the end.
    """

    def run(x: Torch, weight: Torch, flat_bias: Torch | None) -> Torch:
        if weight.shape[0] != x.shape[-3] and weight.shape[1] * groups == x.shape[-3]:
            # (Cout, Cin/g) of each group is one (Cin/g, Cout/g) of PyTorch's.
            weight = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
        left, right, top, bottom = padding_of(padding, tuple(weight.shape[-2:]))
        both = (min(top, bottom), min(left, right))
        made = functional.conv_transpose2d(
            x, weight, flat_bias, stride, both, output_padding, groups, dilation
        )
        # What one side has more than the other is cut off.
        rows, columns = made.shape[-2] - (bottom - both[0]), made.shape[-1] - (right - both[1])
        if rows < top - both[0] or columns < left - both[1]:
            raise PyBudaError(f"padding {padding} takes more than the convolution gives")
        return made[..., top - both[0] : rows, left - both[1] : columns]

    attributes = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    attributes["output_padding"] = output_padding
    return _convolve("conv2d_transpose", name, (activations, weights, bias), run, 2, channel_last, attributes)


def Conv3d(
    name: str,
    activations: Any,
    weights: Any,
    bias: Any | None = None,
    stride: Any = 1,
    padding: Any = "same",
    dilation: Any = 1,
    groups: int = 1,
    channel_last: bool = False,
) -> Tensor:
    """Convolution of volumes (N, Cin, D, H, W) with weights (Cout, Cin/groups, kD, kH, kW)."""

    def run(x: Torch, weight: Torch, flat_bias: Torch | None) -> Torch:
        x, rest = _padded(x, padding, weight, 3)
        return functional.conv3d(x, weight, flat_bias, stride, rest, dilation, groups)

    attributes = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _convolve("conv3d", name, (activations, weights, bias), run, 3, channel_last, attributes)
