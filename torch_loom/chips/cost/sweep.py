"""Reads a sweep, a file of op timings. It may come from anywhere: whatever is wrong is a ChipError."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch_loom.chips.cost.lower import lower
from torch_loom.chips.cost.records import ITEM_BYTES, Kernel, Op, Tensor
from torch_loom.config.files import no_file
from torch_loom.errors import ChipError

MAX_FILE_BYTES = 64 << 20
MAX_CASES = 100_000
MAX_SIZE = 1 << 40


class Case(NamedTuple):
    """One timing: what ran, its kernels, and the nanoseconds that it took on the device."""

    op: str
    shape: tuple[int, ...]
    dtype: str
    kernels: tuple[Kernel, ...]
    device_ns: float

    @property
    def name(self) -> str:
        """What to call it in a table."""
        return f"{self.op} {list(self.shape)} {self.dtype}"


def _vector(name: str, inputs: int) -> Callable[[str, list[int]], Op]:
    def build(dtype: str, shape: list[int]) -> Op:
        tensor = Tensor.dense(dtype, *shape)
        return Op(name, (tensor,) * inputs, (tensor,))

    return build


def _mm(dtype: str, shape: list[int]) -> Op:
    m, k, n = shape
    return Op("mm", (Tensor.dense(dtype, m, k), Tensor.dense(dtype, k, n)), (Tensor.dense(dtype, m, n),))


def _bmm(dtype: str, shape: list[int]) -> Op:
    b, m, k, n = shape
    return Op(
        "bmm", (Tensor.dense(dtype, b, m, k), Tensor.dense(dtype, b, k, n)), (Tensor.dense(dtype, b, m, n),)
    )


def _sum(dtype: str, shape: list[int]) -> Op:
    return Op("sum", (Tensor.dense(dtype, *shape),), (Tensor.dense(dtype),))


def _sum_dim(dtype: str, shape: list[int]) -> Op:
    return Op("sum", (Tensor.dense(dtype, *shape),), (Tensor.dense(dtype, shape[0]),), {"dim": [-1]})


def _softmax(dtype: str, shape: list[int]) -> Op:
    tensor = Tensor.dense(dtype, *shape)
    return Op("_softmax", (tensor,), (tensor,), {"dim": -1})


def _layer_norm(dtype: str, shape: list[int]) -> Op:
    rows, columns = shape
    tensor, scale = Tensor.dense(dtype, rows, columns), Tensor.dense(dtype, columns)
    statistic = Tensor.dense("float32", rows, 1)
    attributes = {"normalized_shape": [columns]}
    return Op("native_layer_norm", (tensor, scale, scale), (tensor, statistic, statistic), attributes)


def _transpose_copy(dtype: str, shape: list[int]) -> Op:
    rows, columns = shape
    return Op("clone", (Tensor(dtype, (columns, rows), (1, columns)),), (Tensor.dense(dtype, columns, rows),))


def _conv2d(dtype: str, shape: list[int]) -> Op:
    n, channels, size, outputs, window, stride = shape
    out = (size + 2 * (window // 2) - window) // stride + 1
    tensors = (
        Tensor.dense(dtype, n, channels, size, size),
        Tensor.dense(dtype, outputs, channels, window, window),
    )
    return Op(
        "convolution",
        tensors,
        (Tensor.dense(dtype, n, outputs, out, out),),
        {"stride": [stride], "groups": 1},
    )


def _max_pool2d(dtype: str, shape: list[int]) -> Op:
    n, channels, size = shape
    out = (size + 2 - 3) // 2 + 1
    result = (Tensor.dense(dtype, n, channels, out, out), Tensor.dense("int64", n, channels, out, out))
    return Op(
        "max_pool2d_with_indices",
        (Tensor.dense(dtype, n, channels, size, size),),
        result,
        {"kernel_size": [3]},
    )


def _sdpa(dtype: str, shape: list[int]) -> Op:
    tensor = Tensor.dense(dtype, *shape)
    return Op("scaled_dot_product_attention", (tensor,) * 3, (tensor,))


def _embedding(dtype: str, shape: list[int]) -> Op:
    table, width, count = shape
    return Op(
        "embedding",
        (Tensor.dense(dtype, table, width), Tensor.dense("int64", count)),
        (Tensor.dense(dtype, count, width),),
    )


def _link(family: str) -> Callable[[str, list[int]], Op]:
    def build(dtype: str, shape: list[int]) -> Op:
        tensor = Tensor.dense(dtype, *shape)
        return Op("copy_", (tensor, tensor), (tensor,), {"link": family})

    return build


# What each op of a sweep is, and how many numbers its shape has.
OPS: Mapping[str, tuple[int, Callable[[str, list[int]], Op]]] = {
    "mm": (3, _mm),
    "bmm": (4, _bmm),
    "add": (1, _vector("add", 2)),
    "mul_scalar": (1, _vector("mul", 1)),
    "gelu": (1, _vector("gelu", 1)),
    "relu_": (1, _vector("relu_", 1)),
    "copy": (1, _vector("clone", 1)),
    "sum": (1, _sum),
    "sum_dim": (2, _sum_dim),
    "softmax": (2, _softmax),
    "layer_norm": (2, _layer_norm),
    "transpose_copy": (2, _transpose_copy),
    "conv2d": (6, _conv2d),
    "max_pool2d": (3, _max_pool2d),
    "sdpa": (4, _sdpa),
    "embedding": (3, _embedding),
    "h2d_pageable": (1, _link("host_to_device")),
    "h2d_pinned": (1, _link("host_to_device_pinned")),
    "d2h_pageable": (1, _link("device_to_host")),
    "d2h_pinned": (1, _link("device_to_host_pinned")),
}


def describe(op: str, shape: list[int], dtype: str) -> Op:
    """Return the op that a row of a sweep timed."""
    return OPS[op][1](dtype, shape)


def read(path: Path) -> list[Case]:
    """Read a sweep: ``{"ops": [{op, shape, dtype, ms, device_ms?}]}``.

    ``device_ms`` is preferred; ``ms``, with the host's part in it, is taken where a copy has no other.

    Raises:
        ChipError: the file cannot be read, or a row has an unknown op or a value that makes no sense.
    """
    content = _content(path)
    rows = content.get("ops") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows or len(rows) > MAX_CASES:
        raise ChipError(
            f"{path}: not a sweep. Allowed: an object whose 'ops' is a list of 1 to {MAX_CASES} rows."
        )
    return [_case(path, number, row) for number, row in enumerate(rows)]


def _content(path: Path) -> Any:
    try:
        if (reason := no_file(path)) is not None:
            raise ChipError(f"{path}: {reason}")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ChipError(f"{path}: the sweep cannot be read: {error}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ChipError(f"{path}: the file is too large. Allowed: {MAX_FILE_BYTES} bytes.")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ChipError(f"{path}: not a JSON file: {error or 'nested too deeply'}") from None


def _case(path: Path, number: int, row: object) -> Case:
    where = f"{path}: ops[{number}]"
    if not isinstance(row, dict):
        raise ChipError(f"{where}: must be an object, got {type(row).__name__}")
    op, dtype, shape = row.get("op"), row.get("dtype"), row.get("shape")
    if not isinstance(op, str) or op not in OPS:
        raise ChipError(f"{where}: unknown op {op!r:.100}. Allowed: {', '.join(OPS)}.")
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise ChipError(f"{where}: unknown dtype {dtype!r:.100}. Allowed: {', '.join(ITEM_BYTES)}.")
    count = OPS[op][0]
    if (
        not isinstance(shape, list)
        or len(shape) != count
        or any(
            not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= MAX_SIZE for size in shape
        )
    ):
        raise ChipError(f"{where}: shape = {shape!r:.100}. Allowed: {count} whole numbers, 1 to {MAX_SIZE}.")
    took = row.get("device_ms", row.get("ms"))
    if (
        isinstance(took, bool)
        or not isinstance(took, (int, float))
        or not math.isfinite(took)
        or not 0 < took < 1e9
    ):
        raise ChipError(f"{where}: device_ms = {took!r:.100}. Allowed: milliseconds, above 0.")
    kernels = tuple(lower(describe(op, shape, dtype)))
    return Case(op, tuple(shape), dtype, kernels, float(took) * 1e6)
