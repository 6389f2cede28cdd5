"""Sizes of convolutions, their padding, and strided ones with the weights of stride 1."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch.nn import functional

from torch_loom import pybuda
from torch_loom.errors import PyBudaError
from torch_loom.pybuda import op
from torch_loom.pybuda.op.eval import sparse_utils


def _drawn(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    return {
        "size": (draw.randint(8, 17), draw.randint(8, 17)),
        "kernel": (draw.randint(1, 6), draw.randint(1, 6)),
        "stride": (draw.randint(1, 5), draw.randint(1, 5)),
        "padding": [draw.randint(0, 4) for _ in range(4)],
    }


@pytest.mark.parametrize("seed", range(40))
def test_a_strided_convolution_is_one_of_stride_1_over_more_channels(seed: int) -> None:
    drawn = _drawn(seed)
    (rows, columns), (y, x), padding = drawn["size"], drawn["stride"], drawn["padding"]
    torch.manual_seed(seed)
    image, weights = torch.randn(1, 2, rows, columns), torch.randn(3, 2, *drawn["kernel"])
    expected = functional.conv2d(functional.pad(image, padding), weights, stride=(y, x))
    sizes = sparse_utils.calculate_conv2d_output_dimensions(rows, columns, drawn["kernel"], (y, x), padding)
    assert sizes == tuple(expected.shape[-2:])
    whole = functional.pad(image, (0, -columns % x, 0, -rows % y))
    parts = torch.cat([whole[:, :, i::y, j::x] for i in range(y) for j in range(x)], dim=1)
    made, around = sparse_utils.calculate_conv2d_prestride_weights_and_padding(
        weights, rows, columns, (y, x), padding
    )
    assert isinstance(made, torch.Tensor)
    torch.testing.assert_close(functional.conv2d(functional.pad(parts, around), made), expected)
    shape, same = sparse_utils.calculate_conv2d_prestride_weights_and_padding(
        list(weights.shape), rows, columns, (y, x), padding
    )
    assert (shape, same) == (made.shape, around)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, (2, 5), (6, 3)])
def test_same_padding_keeps_the_size(kernel: Any) -> None:
    shape = (kernel, kernel) if isinstance(kernel, int) else kernel
    x, weights = torch.rand(1, 2, 9, 11), torch.rand(3, 2, *shape)
    assert tuple(op.Conv2d("c", x, weights, padding="same").value().shape) == (1, 3, 9, 11)
    assert sparse_utils.conv2d_padding_to_canonical("same", kernel) == [
        shape[1] // 2,
        (shape[1] - 1) // 2,
        shape[0] // 2,
        (shape[0] - 1) // 2,
    ]


def test_same_padding_of_pools_is_half_of_the_window_on_both_sides() -> None:
    x = torch.rand(1, 2, 8, 8)
    for kernel in (2, 3, (4, 5)):
        pads = (kernel // 2,) * 2 if isinstance(kernel, int) else tuple(size // 2 for size in kernel)
        got = op.MaxPool2d("p", x, kernel, stride=2, padding="same").value()
        assert torch.equal(got, functional.max_pool2d(x, kernel, 2, pads))
        got = op.AvgPool2d("a", x, kernel, stride=2, padding="same").value()
        assert torch.equal(got, functional.avg_pool2d(x, kernel, 2, pads))


@pytest.mark.parametrize("padding", [0, 1, (2, 1), [1, 0, 2, 1], "same"])
@pytest.mark.parametrize("extra", [0, 1])
def test_transposed_convolutions_of_any_padding(padding: Any, extra: int) -> None:
    x, weights = torch.rand(1, 4, 7, 5), torch.rand(4, 3, 4, 3)
    got = op.Conv2dTranspose("t", x, weights, stride=2, padding=padding, output_padding=extra).value()
    whole = functional.conv_transpose2d(x, weights, stride=2, output_padding=extra)
    left, right, top, bottom = sparse_utils.conv2d_padding_to_canonical(padding, (4, 3))
    rows, columns = whole.shape[-2] - bottom, whole.shape[-1] - right
    torch.testing.assert_close(got, whole[..., top:rows, left:columns])
    sizes = sparse_utils.calculate_conv2d_transpose_output_dimensions(
        7, 5, (4, 3), 2, [left, right, top, bottom], output_padding=extra
    )
    assert sizes == tuple(got.shape[-2:])
    module = pybuda.op.nn.ConvTranspose2dModule(
        "m", 4, 3, (4, 3), stride=2, padding=padding, output_padding=extra
    )
    assert module(pybuda.Tensor(x)).value().shape == got.shape


def test_which_inputs_are_put_together() -> None:
    can = sparse_utils.can_conv2d_prestride
    given: Any = ((1, 3, 8, 8), (4, 3, 3, 3), (2, 2), 1, 1, [1, 1, 1, 1], False, True)
    assert can(*given)
    for place, other in ((2, (1, 1)), (2, (2, 1)), (3, 2), (4, 3), (6, True), (7, False)):
        assert not can(*given[:place], other, *given[place + 1 :])
    assert sparse_utils.does_prestriding_improve_perf((1, 3, 224, 224), (64, 3, 7, 7), (64, 12, 4, 4), 2)
    assert not sparse_utils.does_prestriding_improve_perf((1, 32, 8, 8), (32, 32, 1, 1), (32, 128, 1, 1), 2)
    with pytest.raises(PyBudaError, match="left, right, top, bottom"):
        sparse_utils.calculate_conv2d_output_dimensions(8, 8, 3, 1, [1, 1])
    with pytest.raises(PyBudaError, match="kernel_size"):
        sparse_utils.conv2d_padding_to_canonical(1, (1, 2, 3))
