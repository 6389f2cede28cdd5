"""Pooling: activations (N, C, …), or with the channel last."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.op.apply import apply
from torch_loom.pybuda.op.convolution import padding_of
from torch_loom.pybuda.tensor import Tensor

Torch = Any  # a torch.Tensor; several of its methods have no types


def _sizes(value: Any, num_dims: int) -> tuple[int, ...]:
    return (value,) * num_dims if isinstance(value, int) else tuple(value)


def _symmetric(padding: Any, kernel: tuple[int, ...]) -> tuple[int, ...]:
    values = padding_of(padding, kernel)
    if values[::2] != values[1::2]:
        raise PyBudaError(f"padding {padding} differs between sides")
    return tuple(reversed(values[::2]))


def _pool(op_type: str, name: str, x: Any, num_dims: int, compute: Any, **attributes: Any) -> Any:
    channel_last = attributes["channel_last"]

    def run(value: Torch) -> Any:
        value = value.movedim(-1, -1 - num_dims) if channel_last else value
        made = compute(value)
        if not channel_last:
            return made
        if isinstance(made, tuple):
            return tuple(part.movedim(-1 - num_dims, -1) for part in made)
        return made.movedim(-1 - num_dims, -1)

    return apply(op_type, name, (x,), run, attributes)


def _max_pool(
    num_dims: int,
    name: str,
    activations: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
    add_sub_surround: bool,
    add_sub_surround_value: float,
    channel_last: bool,
) -> Any:
    pools: Any = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
    kernel = _sizes(kernel_size, num_dims)

    def run(x: Torch) -> Any:
        shift = add_sub_surround_value if add_sub_surround else 0.0
        pad = _symmetric(padding, kernel)
        pooled = pools[num_dims](
            x + shift if add_sub_surround else x,
            kernel,
            _sizes(stride, num_dims),
            pad,
            dilation,
            ceil_mode=ceil_mode,
            return_indices=return_indices,
        )
        if not return_indices:
            return pooled - shift if add_sub_surround else pooled
        return (pooled[0] - shift if add_sub_surround else pooled[0], pooled[1].to(torch.int32))

    return _pool(
        f"max_pool{num_dims}d",
        name,
        activations,
        num_dims,
        run,
        kernel_size=kernel_size,
        stride=stride,
        padding=padding,
        dilation=dilation,
        ceil_mode=ceil_mode,
        return_indices=return_indices,
        max_pool_add_sub_surround=add_sub_surround,
        max_pool_add_sub_surround_value=add_sub_surround_value,
        channel_last=channel_last,
    )


def MaxPool1d(
    name: str,
    activations: Any,
    kernel_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: int = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of each window of (N, C, L); with ``return_indices`` also its place (a tuple)."""
    return _max_pool(
        1,
        name,
        activations,
        kernel_size,
        stride,
        padding,
        dilation,
        ceil_mode,
        return_indices,
        False,
        1.0,
        False,
    )


def MaxPool2d(
    name: str,
    activations: Any,
    kernel_size: Any,
    stride: Any = 1,
    padding: Any = "same",
    dilation: int = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    max_pool_add_sub_surround: bool = False,
    max_pool_add_sub_surround_value: float = 1.0,
    channel_last: bool = False,
) -> Any:
    """Maximum of each window of (N, C, H, W).

    With ``return_indices`` a tuple: the maxima, and where each is in its image (Int32). With
    ``max_pool_add_sub_surround`` the value is added before and subtracted after.
    """
    return _max_pool(
        2,
        name,
        activations,
        kernel_size,
        stride,
        padding,
        dilation,
        ceil_mode,
        return_indices,
        max_pool_add_sub_surround,
        max_pool_add_sub_surround_value,
        channel_last,
    )


def MaxPool3d(
    name: str,
    activations: Any,
    kernel_size: Any,
    stride: Any = 1,
    padding: Any = "same",
    dilation: int = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    channel_last: bool = False,
) -> Any:
    """Maximum of each window of (N, C, D, H, W)."""
    return _max_pool(
        3,
        name,
        activations,
        kernel_size,
        stride,
        padding,
        dilation,
        ceil_mode,
        return_indices,
        False,
        1.0,
        channel_last,
    )


def AvgPool1d(
    name: str,
    activations: Any,
    kernel_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean of each window of (N, C, L)."""
    kernel = _sizes(kernel_size, 1)

    def run(x: Torch) -> Torch:
        pad = _symmetric(padding, kernel)
        return functional.avg_pool1d(x, kernel, _sizes(stride, 1), pad, ceil_mode, count_include_pad)

    made: Tensor = _pool(
        "avg_pool1d",
        name,
        activations,
        1,
        run,
        kernel_size=kernel_size,
        stride=stride,
        padding=padding,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        channel_last=False,
    )
    return made


def AvgPool2d(
    name: str,
    activations: Any,
    kernel_size: Any,
    stride: Any = 1,
    padding: Any = "same",
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: float | None = None,
    channel_last: bool = False,
) -> Tensor:
    """Mean of each window of (N, C, H, W); ``divisor_override`` replaces the window's size."""
    kernel = _sizes(kernel_size, 2)

    def run(x: Torch) -> Torch:
        pad = _symmetric(padding, kernel)
        strides = _sizes(stride, 2)
        if divisor_override is None:
            return functional.avg_pool2d(x, kernel, strides, pad, ceil_mode, count_include_pad)
        # PyTorch takes whole divisors only.
        sums = functional.avg_pool2d(x, kernel, strides, pad, ceil_mode, divisor_override=1)
        return sums / divisor_override

    made: Tensor = _pool(
        "avg_pool2d",
        name,
        activations,
        2,
        run,
        kernel_size=kernel_size,
        stride=stride,
        padding=padding,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        divisor_override=divisor_override,
        channel_last=channel_last,
    )
    return made
