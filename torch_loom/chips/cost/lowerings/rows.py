"""Reductions, softmax, normalisation, pooling: what walks along rows or columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from torch_loom.chips.cost.lowerings.common import (
    NARROW,
    as_int,
    as_list,
    inner_dim,
    largest,
    moved_bytes,
    stream,
)
from torch_loom.chips.cost.lowerings.data import copy, elementwise
from torch_loom.chips.cost.records import Kernel, Op, Tensor

# PyTorch's own batch norms give each plane of an image a block of so many threads at least.
PLANE_THREADS = 128
# Longer rows of a softmax do not fit into the registers of one warp.
WARP_COLUMNS = 1024


def column_sum(tensor: Tensor, kept: int) -> list[Kernel]:
    size = float(tensor.memory_bytes)
    return [
        Kernel(
            *("reduce_columns", tensor.dtype, size, float(kept * tensor.item_bytes), size),
            rows=kept,
            columns=max(1, tensor.items // max(1, kept)),
            items=float(tensor.items),
            item_bytes=tensor.item_bytes,
        )
    ]


def reduction(op: Op) -> list[Kernel]:
    if sum(tensor.items for tensor in op.outputs) >= sum(tensor.items for tensor in op.inputs):
        return elementwise(op)  # a gradient, say, which has an element for each
    source = largest(op.inputs)
    kept = max(1, op.outputs[0].items if op.outputs else 1)
    if source.items == 0:
        return [stream("fill", op, inputs=())]
    size, written = float(source.memory_bytes), moved_bytes(op.outputs)
    if kept == 1:
        return [
            Kernel(
                *("reduce_all", source.dtype, size, written, size + written, float(source.items)),
                item_bytes=source.item_bytes,
            )
        ]
    dims = op.attributes.get("dim")
    rank = len(source.shape)
    reduced = {dim % rank for dim in as_list(dims, 0, -1) or [rank - 1]} if dims is None else set()
    if dims is not None:
        found = [dims] if isinstance(dims, int) else list(cast(Sequence[int], dims))
        reduced = {int(dim) % rank for dim in found} or set(range(rank))
    family = "reduce_rows" if inner_dim(source) in reduced else "reduce_columns"
    return [
        Kernel(
            *(family, source.dtype, size, written, size + written, float(source.items)),
            rows=kept,
            columns=max(1, source.items // kept),
            item_bytes=source.item_bytes,
        )
    ]


def _row_kernel(
    family: str, op: Op, columns: int, reads: Sequence[Tensor], writes: Sequence[Tensor]
) -> Kernel:
    main = largest(reads)
    read, written = moved_bytes(reads), moved_bytes(writes)
    return Kernel(
        *(family, main.dtype, read, written, read + written, float(main.items)),
        rows=main.items // max(1, columns),
        columns=columns,
        item_bytes=main.item_bytes,
    )


def made_contiguous(*tensors: Tensor) -> list[Kernel]:
    """Return the copies that a kernel makes first of operands that it cannot walk through."""
    kernels = []
    for tensor in tensors:
        if tensor.items and not tensor.is_contiguous:
            dense = Tensor.dense(tensor.dtype, *tensor.shape)
            kernels += copy(Op("clone", (tensor,), (dense,)))
    return kernels


def softmax(op: Op) -> list[Kernel]:
    source = op.inputs[0]
    dim = as_int(op.attributes.get("dim"), -1)
    columns = source.shape[dim] if source.shape else 1
    if not source.items:
        return []
    if "backward" in op.name:
        row = _row_kernel("softmax_backward", op, columns, op.inputs[:2], op.outputs)
        return [*made_contiguous(*op.inputs[:2]), row]
    family = "softmax" if columns <= WARP_COLUMNS else "softmax_long"
    return [*made_contiguous(source), _row_kernel(family, op, columns, op.inputs[:1], op.outputs)]


def layer_norm(op: Op) -> list[Kernel]:
    source = op.inputs[0]
    shape = op.attributes.get("normalized_shape")
    columns = math.prod(as_list(shape, len(cast(Sequence[int], shape)), 1)) if shape else source.shape[-1]
    if not source.items:
        return []
    family = "layer_norm"
    if op.name == "native_group_norm" and len(op.outputs) > 1:
        family, columns = "group_norm", source.items // max(1, op.outputs[1].items)  # a mean for each group
    return [*made_contiguous(source), _row_kernel(family, op, columns, op.inputs, op.outputs)]


def layer_norm_backward(op: Op) -> list[Kernel]:
    grad, source = op.inputs[0], op.inputs[1]
    shape = op.attributes.get("normalized_shape")
    columns = math.prod(as_list(shape, len(cast(Sequence[int], shape)), 1)) if shape else source.shape[-1]
    kernels = made_contiguous(grad, source)
    if op.name == "native_group_norm_backward" and len(op.inputs) > 2:
        columns = source.items // max(1, op.inputs[2].items)
        return [*kernels, _row_kernel("group_norm_backward", op, columns, (grad, source), (source,))]
    kernels.append(_row_kernel("layer_norm_backward", op, columns, (grad, source), (source,)))
    if len(op.outputs) > 1:
        kernels += [
            kernel._replace(
                read_bytes=moved_bytes((grad, source)), footprint_bytes=moved_bytes((grad, source))
            )
            for kernel in column_sum(source, columns)
        ]
    return kernels


def _is_own(source: Tensor, operands: Sequence[Tensor]) -> bool:
    """Return whether PyTorch's own kernels work: cuDNN is given no bfloat16, nor half-precision weights."""
    return source.dtype == "bfloat16" or any(each.dtype in NARROW for each in operands if each is not source)


def batch_norm(op: Op) -> list[Kernel]:
    source = op.inputs[0]
    out = op.outputs[0] if op.outputs else source
    parameters = [each for each in op.inputs[1:] if len(each.shape) == 1]
    is_own = _is_own(source, parameters)
    if op.attributes.get("training", op.attributes.get("train", True)):
        return [_by_channels("batch_norm", source, stream("batch_norm", op, (source,), (out,)), is_own)]
    kernel = stream("batch_norm_inference", op, (source,), (out,))
    if not is_own:
        return [kernel]
    # Its scale is computed first, in float32, to which a narrower mean is converted.
    channels = Tensor.dense("float32", *source.shape[1:2])
    before = [stream("elementwise_heavy", op, (channels,), (channels,))]
    before += [
        stream("elementwise", op, (each,), (channels,)) for each in parameters[2:3] if each.dtype in NARROW
    ]
    if _has_channels_last(source):
        return [*before, kernel]
    planes = math.prod(source.shape[:2])
    items = float(max(source.items, planes * PLANE_THREADS))
    return [*before, kernel._replace(family="batch_norm_inference_own", items=items)]


def batch_norm_backward(op: Op) -> list[Kernel]:
    grad, source = op.inputs[0], op.inputs[1]
    is_own = _is_own(source, [each for each in op.inputs[2:] if len(each.shape) == 1])
    kernel = stream("", op, (grad, source), (source,))
    return [_by_channels("batch_norm_backward", source, kernel, is_own)]


def _has_channels_last(source: Tensor) -> bool:
    return len(source.shape) < 2 or source.strides[1] == 1


def _by_channels(family: str, source: Tensor, kernel: Kernel, is_own: bool) -> Kernel:
    """Return a kernel with what one core does alone: a channel, unless channels lie innermost."""
    if _has_channels_last(source):
        return kernel._replace(family=f"{family}_last")
    columns = source.items // max(1, source.shape[1])
    return kernel._replace(family=f"{family}{'_own' if is_own else ''}", columns=columns)


def pooling(op: Op) -> list[Kernel]:
    rank = 3 if "3d" in op.name else 1 if "1d" in op.name else 2
    window = math.prod(as_list(op.attributes.get("kernel_size"), rank, 1))
    backward = "backward" in op.name
    out = op.outputs[0]
    if op.name.startswith("_adaptive") or op.name.startswith("adaptive"):
        window = max(1, op.inputs[0].items // max(1, out.items))
    elif len(op.inputs[0].shape) > rank:
        # A window has no more elements than its image, and an image that is one result has one.
        image = math.prod(op.inputs[0].shape[-rank:])
        window = min(window, image)
    family = "pooling_backward" if backward else "pooling"
    return [stream(family, op, items=float(out.items * window))]
