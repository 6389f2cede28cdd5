"""What each op of a sweep is: the operands of a row, by its op, shape, dtype and further keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch_loom.chips.cost.records import Op, Tensor

MAX_GEOMETRY = 1 << 20


class Row(NamedTuple):
    """A row of a sweep that says what was timed: dtype, shape, and what its further keys say.

    Attributes:
        geometry: by key, two numbers each: ``hw`` (sizes of the image), ``rs`` (of the window), ``pad`` and
            ``stride`` of convolutions.
        layout: ``nhwc`` for channels that lie innermost, or how a product's operands lie, as cuBLAS is told
            of its matrices, column by column: ``NN``, ``NT``, ``TN``, ``TT``; without it row by row.
        groups: of a convolution.
    """

    dtype: str
    shape: tuple[int, ...]
    geometry: Mapping[str, tuple[int, int]] = {}
    layout: str = ""
    groups: int = 1


LAYOUTS = ("", "NN", "NT", "TN", "TT", "nchw", "nhwc")
GEOMETRY = ("hw", "rs", "pad", "stride")

Build = Callable[[Row], Op]


def _vector(name: str, inputs: int) -> Build:
    def build(row: Row) -> Op:
        tensor = Tensor.dense(row.dtype, *row.shape)
        return Op(name, (tensor,) * inputs, (tensor,))

    return build


def _matrix(row: Row, sizes: tuple[int, int], is_transposed: bool) -> Tensor:
    strides = (1, sizes[0]) if is_transposed else (sizes[1], 1)
    return Tensor(row.dtype, sizes, strides)


def _mm(row: Row) -> Op:
    m, k, n = row.shape
    layout = row.layout if len(row.layout) == 2 else "TT"
    operands = (_matrix(row, (m, k), layout[0] == "N"), _matrix(row, (k, n), layout[1] == "N"))
    return Op("mm", operands, (_matrix(row, (m, n), layout == row.layout),))


def _linear(row: Row) -> Op:
    m, k, n = row.shape
    operands = Tensor.dense(row.dtype, n), Tensor.dense(row.dtype, m, k), _matrix(row, (k, n), True)
    return Op("addmm", operands, (Tensor.dense(row.dtype, m, n),))


def _bmm(row: Row) -> Op:
    b, m, k, n = row.shape
    operands = Tensor.dense(row.dtype, b, m, k), Tensor.dense(row.dtype, b, k, n)
    return Op("bmm", operands, (Tensor.dense(row.dtype, b, m, n),))


def _sum(row: Row) -> Op:
    return Op("sum", (Tensor.dense(row.dtype, *row.shape),), (Tensor.dense(row.dtype),))


def _sum_dim(row: Row) -> Op:
    source = Tensor.dense(row.dtype, *row.shape)
    return Op("sum", (source,), (Tensor.dense(row.dtype, row.shape[0]),), {"dim": [-1]})


def _softmax(row: Row) -> Op:
    tensor = Tensor.dense(row.dtype, *row.shape)
    return Op("_softmax", (tensor,), (tensor,), {"dim": -1})


def _layer_norm(row: Row) -> Op:
    rows, columns = row.shape
    tensor, scale = Tensor.dense(row.dtype, rows, columns), Tensor.dense(row.dtype, columns)
    statistic = Tensor.dense("float32", rows, 1)
    attributes = {"normalized_shape": [columns]}
    return Op("native_layer_norm", (tensor, scale, scale), (tensor, statistic, statistic), attributes)


def _transpose_copy(row: Row) -> Op:
    rows, columns = row.shape
    source = Tensor(row.dtype, (columns, rows), (1, columns))
    return Op("clone", (source,), (Tensor.dense(row.dtype, columns, rows),))


def image(row: Row, *sizes: int) -> Tensor:
    """Return a batch of images in the row's layout."""
    if row.layout != "nhwc":
        return Tensor.dense(row.dtype, *sizes)
    _, channels, height, width = sizes
    return Tensor(row.dtype, sizes, (height * width * channels, 1, width * channels, channels))


def _convolved(row: Row) -> tuple[Tensor, Tensor, Tensor, dict[str, object]]:
    """Return source, weight, result and attributes of a row's convolution."""
    n, channels, size, outputs, window, step = row.shape
    hw, rs = row.geometry.get("hw", (size, size)), row.geometry.get("rs", (window, window))
    pad = row.geometry.get("pad", (rs[0] // 2, rs[1] // 2))
    stride = row.geometry.get("stride", (step, step))
    # A window that its image and padding do not hold has one place all the same.
    out = [
        max(1, (each + 2 * around - across) // by + 1)
        for each, around, across, by in zip(hw, pad, rs, stride, strict=True)
    ]
    weight = image(row, outputs, max(1, channels // row.groups), *rs)
    attributes: dict[str, object] = {"stride": list(stride), "padding": list(pad), "groups": row.groups}
    return image(row, n, channels, *hw), weight, image(row, n, outputs, *out), attributes


def _conv2d(row: Row) -> Op:
    source, weight, result, attributes = _convolved(row)
    return Op("convolution", (source, weight), (result,), attributes)


def _conv2d_gradient(of_weight: bool) -> Build:
    def build(row: Row) -> Op:
        source, weight, result, attributes = _convolved(row)
        mask = [not of_weight, of_weight, False]
        made = (weight if of_weight else source,)
        return Op("convolution_backward", (result, source, weight), made, {**attributes, "output_mask": mask})

    return build


def _depthwise(build: Build) -> Build:
    """Return what builds a depthwise op of ``[N, C, H, R, stride]``."""

    def depthwise(row: Row) -> Op:
        n, channels, size, window, stride = row.shape
        return build(row._replace(shape=(n, channels, size, channels, window, stride), groups=channels))

    return depthwise


def _batch_norm(training: bool) -> Build:
    def build(row: Row) -> Op:
        n, channels, size = row.shape
        source, scale = image(row, n, channels, size, size), Tensor.dense("float32", channels)
        return Op("native_batch_norm", (source, *(scale,) * 4), (source,), {"training": training})

    return build


def _batch_norm_backward(row: Row) -> Op:
    n, channels, size = row.shape
    source, scale = image(row, n, channels, size, size), Tensor.dense("float32", channels)
    operands = (source, source, *(scale,) * 5)
    return Op("native_batch_norm_backward", operands, (source, scale, scale), {"train": True})


def _max_pool2d(row: Row) -> Op:
    n, channels, size = row.shape
    out = (size + 2 - 3) // 2 + 1
    result = image(row, n, channels, out, out), Tensor.dense("int64", n, channels, out, out)
    return Op("max_pool2d_with_indices", (image(row, n, channels, size, size),), result, {"kernel_size": [3]})


def _sdpa(row: Row) -> Op:
    tensor = Tensor.dense(row.dtype, *row.shape)
    return Op("scaled_dot_product_attention", (tensor,) * 3, (tensor,))


def _sdpa_backward(row: Row) -> Op:
    tensor = Tensor.dense(row.dtype, *row.shape)
    return Op("_scaled_dot_product_efficient_attention_backward", (tensor,) * 5, (tensor,) * 3)


def _embedding(row: Row) -> Op:
    table, width, count = row.shape
    operands = Tensor.dense(row.dtype, table, width), Tensor.dense("int64", count)
    return Op("embedding", operands, (Tensor.dense(row.dtype, count, width),))


def _link(family: str) -> Build:
    def build(row: Row) -> Op:
        tensor = Tensor.dense(row.dtype, *row.shape)
        return Op("copy_", (tensor, tensor), (tensor,), {"link": family})

    return build


# What each op of a sweep is, and how many numbers its shape has.
OPS: Mapping[str, tuple[int, Build]] = {
    "mm": (3, _mm),
    "linear": (3, _linear),
    "bmm": (4, _bmm),
    "add": (1, _vector("add", 2)),
    "mul": (1, _vector("mul", 2)),
    "div": (1, _vector("div", 2)),
    "mul_scalar": (1, _vector("mul", 1)),
    "relu": (1, _vector("relu", 1)),
    "gelu": (1, _vector("gelu", 1)),
    "tanh": (1, _vector("tanh", 1)),
    "relu_": (1, _vector("relu_", 1)),
    "copy": (1, _vector("clone", 1)),
    "sum": (1, _sum),
    "sum_dim": (2, _sum_dim),
    "softmax": (2, _softmax),
    "layer_norm": (2, _layer_norm),
    "transpose_copy": (2, _transpose_copy),
    "conv2d": (6, _conv2d),
    "conv2d_dgrad": (6, _conv2d_gradient(False)),
    "conv2d_wgrad": (6, _conv2d_gradient(True)),
    "depthwise": (5, _depthwise(_conv2d)),
    "depthwise_dgrad": (5, _depthwise(_conv2d_gradient(False))),
    "depthwise_wgrad": (5, _depthwise(_conv2d_gradient(True))),
    "batch_norm": (3, _batch_norm(True)),
    "batch_norm_inference": (3, _batch_norm(False)),
    "batch_norm_backward": (3, _batch_norm_backward),
    "max_pool2d": (3, _max_pool2d),
    "sdpa": (4, _sdpa),
    "sdpa_backward": (4, _sdpa_backward),
    "embedding": (3, _embedding),
    "h2d_pageable": (1, _link("host_to_device")),
    "h2d_pinned": (1, _link("host_to_device_pinned")),
    "d2h_pageable": (1, _link("device_to_host")),
    "d2h_pinned": (1, _link("device_to_host_pinned")),
}

# Of several chips, [ranks, bytes]: read and checked, and no kernel of one chip.
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")
