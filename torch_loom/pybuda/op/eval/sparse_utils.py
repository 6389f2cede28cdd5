"""Sizes of convolutions, and strided ones as convolutions of stride 1 over more channels.

A chip reads the pixels of one patch from one place if they were put together: of a stride (s, t) the input
becomes s·t images, of the rows and columns that are equal modulo s and t, one after another as channels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.op.convolution import padding_of
from torch_loom.pybuda.utils import align_up_tile, round_up_div

Pair = int | Sequence[int]


def conv2d_padding_to_canonical(padding: int | str | Sequence[int], kernel_size: Pair) -> list[int]:
    """Return a padding as [left, right, top, bottom].

    Args:
        padding: "same" (of a convolution: pools take half of an even window on both sides), a number,
            (rows, columns), or the four.

    Raises:
        PyBudaError: it is none of these.
    """
    return padding_of(padding, _pair("kernel_size", kernel_size))  # type: ignore[arg-type]


def calculate_conv2d_output_dimensions(
    original_y: int,
    original_x: int,
    kernel_size: Pair,
    stride: Pair,
    padding: Sequence[int],
    dilation: int = 1,
    ceil_mode: bool = False,
) -> tuple[int, int]:
    """Return rows and columns of what a convolution or a pool makes of so many.

    Args:
        padding: [left, right, top, bottom].
        ceil_mode: windows that reach beyond the last row or column count.
    """
    left, right, top, bottom = _four(padding)
    kernel, strides = _pair("kernel_size", kernel_size), _pair("stride", stride)
    made = []
    for place, size in enumerate((original_y + top + bottom, original_x + left + right)):
        free = size - dilation * (kernel[place] - 1) - 1
        count = (round_up_div(free, strides[place]) if ceil_mode else free // strides[place]) + 1
        # As in PyTorch no window begins behind the input and what is padded before it.
        last = size - (bottom, right)[place]
        made.append(count - (ceil_mode and (count - 1) * strides[place] >= last))
    return made[0], made[1]


def calculate_conv2d_transpose_output_dimensions(
    original_y: int,
    original_x: int,
    kernel_size: Pair,
    stride: Pair,
    padding: int | Sequence[int],
    dilation: int = 1,
    output_padding: int = 0,
) -> tuple[int, int]:
    """Return rows and columns of what a transposed convolution makes of so many."""
    left, right, top, bottom = [padding] * 4 if isinstance(padding, int) else _four(padding)
    kernel, strides = _pair("kernel_size", kernel_size), _pair("stride", stride)
    made = [
        (size - 1) * strides[place] - around + dilation * (kernel[place] - 1) + 1 + output_padding
        for place, (size, around) in enumerate(((original_y, top + bottom), (original_x, left + right)))
    ]
    return made[0], made[1]


def calculate_conv2d_prestride_weights_and_padding(
    weights: torch.Tensor | Sequence[int],
    original_y: int,
    original_x: int,
    stride: Pair,
    padding: int | Sequence[int],
) -> tuple[torch.Tensor | torch.Size, list[int]]:
    """Return the weights and the padding with which a convolution of stride 1 does what a strided one does.

    Args:
        weights: (out, in, rows, columns), or these sizes: then sizes are returned.
        padding: a number, or [left, right, top, bottom]; negative ones of the result cut off.
    """
    values = weights if isinstance(weights, torch.Tensor) else torch.empty(tuple(weights), device="meta")
    left, right, top, bottom = [padding] * 4 if isinstance(padding, int) else _four(padding)
    rows, columns = _pair("stride", stride)
    kernel = (int(values.shape[-2]), int(values.shape[-1]))
    wanted = calculate_conv2d_output_dimensions(
        original_y, original_x, kernel, (rows, columns), [left, right, top, bottom]
    )
    # The first row that is read becomes the first of a group of as many as the stride has.
    before = [-top % rows, -left % columns]
    after = [-(size + more) % step for size, more, step in zip(kernel, before, (rows, columns), strict=True)]
    whole = torch.nn.functional.pad(values, (before[1], after[1], before[0], after[0]))
    parts = [whole[:, :, y::rows, x::columns] for y in range(rows) for x in range(columns)]
    made = torch.cat(parts, dim=1)
    around: list[int] = []
    for place, (size, first, step) in enumerate(((original_y, top, rows), (original_x, left, columns))):
        begin = round_up_div(first, step)
        end = wanted[place] - 1 + int(made.shape[2 + place]) - round_up_div(size, step) - begin
        around = [begin, end, *around]
    return made if isinstance(weights, torch.Tensor) else made.shape, around


def can_conv2d_prestride(
    act_shape: Sequence[int],
    weight_shape: Sequence[int],
    stride: Sequence[int],
    dilation: int,
    groups: int,
    padding: Sequence[int],
    channel_last: bool,
    graph_input: bool,
) -> bool:
    """Whether a convolution's input can be put together so: an input of the graph, of one stride above 1."""
    is_plain = dilation == 1 and groups == 1 and not channel_last
    return graph_input and is_plain and stride[0] == stride[1] and stride[0] > 1


def does_prestriding_improve_perf(
    act_shape: Sequence[int], weights_shape: Sequence[int], ps_weights: Sequence[int], stride: int
) -> bool:
    """Whether products of fewer tiles are needed with the weights of stride 1, by these sizes."""
    _, _, y, x = act_shape

    def products(pixels: int, sizes: Sequence[int]) -> int:
        out, channels, rows, columns = sizes
        return align_up_tile(pixels) * align_up_tile(channels) * rows * columns * align_up_tile(out)

    fewer = round_up_div(y, stride) * round_up_div(x, stride)
    return products(fewer, ps_weights) < products(y * x, weights_shape)


def _pair(what: str, value: Pair) -> tuple[int, int]:
    given = (value, value) if isinstance(value, int) else tuple(value)
    if len(given) != 2:
        raise PyBudaError(f"{what} is {value!r}; it is a number, or (rows, columns)")
    return given[0], given[1]


def _four(padding: Sequence[int]) -> list[int]:
    given = list(padding)
    if len(given) != 4 or not all(isinstance(each, int) for each in given):
        raise PyBudaError(f"padding is {padding!r}; it is [left, right, top, bottom]")
    return given
