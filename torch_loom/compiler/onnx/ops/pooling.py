"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import Unpack

from torch_loom.compiler.onnx.ops.windows import Window, pads_of, steps_of, torch_pads
from torch_loom.compiler.onnx.table import Int, Ints, op

_MAX = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
_AVERAGE = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)
_CONVOLUTIONS = (functional.conv1d, functional.conv2d, functional.conv3d)


@op("MaxPool")
def max_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    ceil_mode: Int = 0,
    storage_order: Int = 0,
    num_outputs: int = 1,
    **window: Unpack[Window],
) -> tuple[Tensor, ...]:
    """Largest of each window, and its place in the whole tensor."""
    rank = len(kernel_shape)
    stride, dilation = steps_of(window, rank)
    padding = pads_of(window, x.shape[2:], kernel_shape)
    low = -torch.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    if num_outputs == 1 and _is_simple(padding, kernel_shape) and x.is_floating_point():
        made = _MAX[rank - 1](x, list(kernel_shape), stride, padding[:rank], dilation, bool(ceil_mode))
        return (made,)
    begins = padding[:rank]
    padding = _with_ceiling(padding, x.shape[2:], kernel_shape, stride, dilation, bool(ceil_mode))
    wide = functional.pad(x, torch_pads(padding), value=low)
    if not x.is_floating_point():
        wide = wide.double()
    made, places = _MAX[rank - 1](wide, list(kernel_shape), stride, 0, dilation, False, True)
    if num_outputs == 1:
        return (made.to(x.dtype),)
    return made.to(x.dtype), _unpadded(places, wide.shape[2:], x.shape, begins, storage_order)


def _is_simple(padding: Sequence[int], kernel: Sequence[int]) -> bool:
    """Whether PyTorch's pooling takes the padding: equal on both sides, at most half of the kernel."""
    begins, ends = padding[: len(kernel)], padding[len(kernel) :]
    return begins == ends and all(2 * side <= size for side, size in zip(begins, kernel, strict=True))


def _unpadded(
    places: Tensor, wide: Sequence[int], shape: Sequence[int], begins: Sequence[int], storage_order: int
) -> Tensor:
    """Turn places in padded planes into places in the whole of the tensor."""
    rank = len(wide)
    coordinates: list[Tensor] = []
    for axis in reversed(range(rank)):
        coordinates.insert(0, places % wide[axis] - begins[axis])
        places = places // wide[axis]
    order = list(range(rank)) if storage_order == 0 else [*range(rank - 2), rank - 1, rank - 2]
    flat = torch.zeros_like(places)
    for axis in order:
        flat = flat * shape[2 + axis] + coordinates[axis]
    planes = torch.arange(shape[0] * shape[1], device=places.device)
    volume = 1
    for size in shape[2:]:
        volume = volume * size
    return flat + (planes * volume).reshape(shape[0], shape[1], *[1] * rank)


@op("AveragePool")
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    ceil_mode: Int = 0,
    count_include_pad: Int = 0,
    **window: Unpack[Window],
) -> Tensor:
    """Mean of each window."""
    rank = len(kernel_shape)
    stride, dilation = steps_of(window, rank)
    padding = pads_of(window, x.shape[2:], kernel_shape)
    if _is_simple(padding, kernel_shape) and dilation == [1] * rank:
        return _AVERAGE[rank - 1](
            x, list(kernel_shape), stride, padding[:rank], bool(ceil_mode), bool(count_include_pad)
        )
    sums = _window_sums(x, padding, kernel_shape, stride, dilation, bool(ceil_mode))
    ones = torch.ones_like(x[:1, :1])
    if count_include_pad:
        ones = functional.pad(ones, torch_pads(padding), value=1.0)
        padding = [0] * (2 * rank)
    return sums / _window_sums(ones, padding, kernel_shape, stride, dilation, bool(ceil_mode))


@op("LpPool")
def lp_pool(
    x: Tensor, *, kernel_shape: Ints, ceil_mode: Int = 0, p: Int = 2, **window: Unpack[Window]
) -> Tensor:
    """Norm of each window."""
    rank = len(kernel_shape)
    stride, dilation = steps_of(window, rank)
    padding = pads_of(window, x.shape[2:], kernel_shape)
    return _window_sums(x.abs() ** p, padding, kernel_shape, stride, dilation, bool(ceil_mode)) ** (1 / p)


@op("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    """Mean of each plane."""
    return x.mean(list(range(2, x.dim())), keepdim=True)


@op("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    """Largest of each plane."""
    return x.amax(list(range(2, x.dim())), keepdim=True)


@op("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: Int = 2) -> Tensor:
    """Norm of each plane."""
    made: Tensor = torch.linalg.vector_norm(x, p, list(range(2, x.dim())), keepdim=True)
    return made


@op("MaxUnpool")
def max_unpool(
    x: Tensor,
    indices: Tensor,
    output_shape: Ints | None = None,
    *,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """Put values at the places that a pooling took them from."""
    rank = len(kernel_shape)
    stride, padding = strides or [1] * rank, pads or [0] * (2 * rank)
    shape = [
        (x.shape[2 + axis] - 1) * stride[axis] + kernel_shape[axis] - padding[axis] - padding[axis + rank]
        for axis in range(rank)
    ]
    small = torch.zeros([*x.shape[:2], *shape], dtype=x.dtype, device=x.device)
    made = small.flatten().scatter(0, indices.flatten(), x.flatten()).reshape(small.shape)
    if output_shape is None:
        return made
    more = [wanted - size for wanted, size in zip(output_shape, made.shape, strict=True)]
    return functional.pad(made, [side for extra in reversed(more) for side in (0, extra)])


def _window_sums(
    x: Tensor,
    padding: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    ceiling: bool,
) -> Tensor:
    padding = _with_ceiling(padding, x.shape[2:], kernel, stride, dilation, ceiling)
    wide = functional.pad(x, torch_pads(padding))
    weight = torch.ones([1, 1, *kernel], dtype=x.dtype, device=x.device)
    made = _CONVOLUTIONS[len(kernel) - 1](
        wide.flatten(0, 1).unsqueeze(1), weight, None, list(stride), 0, list(dilation)
    )
    return made.reshape(*x.shape[:2], *made.shape[2:])


def _with_ceiling(
    padding: Sequence[int],
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    ceiling: bool,
) -> list[int]:
    """Return pads that hold the last window which begins before the padding at the end."""
    made = list(padding)
    rank = len(kernel)
    for axis in range(rank if ceiling else 0):
        reach = (kernel[axis] - 1) * dilation[axis] + 1
        size = sizes[axis] + padding[axis] + padding[axis + rank]
        outputs = -(-(size - reach) // stride[axis]) + 1
        if (outputs - 1) * stride[axis] >= sizes[axis] + padding[axis]:
            outputs -= 1
        made[axis + rank] += max((outputs - 1) * stride[axis] + reach - size, 0)
    return made
