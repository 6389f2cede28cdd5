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
    if padding == "same":
        return tuple(size // 2 for size in kernel)  # on both sides, of even windows too
    values = padding_of(padding, kernel)
    if values[::2] != values[1::2]:
        raise PyBudaError(f"padding {padding} differs between sides")
    return tuple(reversed(values[::2]))


def _pool(op_type: str, name: str, x: Any, num_dims: int, compute: Any, attributes: dict[str, Any]) -> Any:
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


def _max_pool(num_dims: int, name: str, activations: Any, **attributes: Any) -> Any:
    pools: Any = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
    kernel = _sizes(attributes["kernel_size"], num_dims)
    has_shift = attributes.setdefault("max_pool_add_sub_surround", False)
    shift = attributes.setdefault("max_pool_add_sub_surround_value", 1.0)
    attributes.setdefault("channel_last", False)

    def run(x: Torch) -> Any:
        pooled = pools[num_dims](
            x + shift if has_shift else x,
            kernel,
            _sizes(attributes["stride"], num_dims),
            _symmetric(attributes["padding"], kernel),
            attributes["dilation"],
            ceil_mode=attributes["ceil_mode"],
            return_indices=attributes["return_indices"],
        )
        if not attributes["return_indices"]:
            return pooled - shift if has_shift else pooled
        return (pooled[0] - shift if has_shift else pooled[0], pooled[1].to(torch.int32))

    return _pool(f"max_pool{num_dims}d", name, activations, num_dims, run, attributes)


def _avg_pool(num_dims: int, name: str, activations: Any, **attributes: Any) -> Any:
    pool: Any = functional.avg_pool1d if num_dims == 1 else functional.avg_pool2d
    kernel, stride = (_sizes(attributes[size], num_dims) for size in ("kernel_size", "stride"))
    divisor = attributes.get("divisor_override")
    attributes.setdefault("channel_last", False)

    def run(x: Torch) -> Torch:
        pad = _symmetric(attributes["padding"], kernel)
        ceil_mode, counts_pad = attributes["ceil_mode"], attributes["count_include_pad"]
        if divisor is None:
            return pool(x, kernel, stride, pad, ceil_mode, counts_pad)
        # PyTorch takes whole divisors only.
        return pool(x, kernel, stride, pad, ceil_mode, divisor_override=1) / divisor

    return _pool(f"avg_pool{num_dims}d", name, activations, num_dims, run, attributes)


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
    return _max_pool(1, **locals())


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
    return _max_pool(2, **locals())


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
    return _max_pool(3, **locals())


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
    made: Tensor = _avg_pool(1, **locals())
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
    made: Tensor = _avg_pool(2, **locals())
    return made
