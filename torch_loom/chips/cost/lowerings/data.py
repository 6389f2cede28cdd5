"""Ops on each element, copies, optimizers' lists, gathering, sorting: what memory decides."""

from __future__ import annotations

import math

from torch_loom.chips.cost.lowerings.common import inner_dim, largest, moved_bytes, same_order, stream
from torch_loom.chips.cost.records import Kernel, Op, Tensor

# A list of tensors is cut into chunks of so many elements, a launch takes so many chunks,
# and so many tensors by how many lists there are: what fits into the arguments of one kernel.
CHUNK_ITEMS = 65_536
CHUNKS_PER_LAUNCH = 320
TENSORS_PER_LAUNCH = (0, 110, 64, 48, 36, 30)

# So many indices are scattered at once; more are sorted first.
UNSORTED_INDICES = 3072
# Keys, digits by eight passes, segments, offsets: what sorting indices takes.
SORT_LAUNCHES = 12

# Functions of an element that take so many instructions that they, not memory, may decide.
HEAVY = frozenset(
    [
        *("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos"),
        *("atan", "sinh", "cosh", "tanh", "erf", "erfc", "erfinv", "gelu", "silu", "mish", "elu", "sigmoid"),
        *("softplus", "logit", "pow", "tanh_backward", "gelu_backward", "silu_backward", "sigmoid_backward"),
        *("softplus_backward", "elu_backward", "mish_backward", "lgamma", "digamma", "logaddexp", "atan2"),
        *("fmod", "remainder", "floor_divide", "special_erfcx"),
    ]
)


def nothing(op: Op) -> list[Kernel]:
    """Views, and memory without contents: no kernel runs."""
    return []


def elementwise(op: Op) -> list[Kernel]:
    base = op.name.removesuffix("_")
    operands = (*op.inputs, *op.outputs)
    if operands.count(operands[0]) == len(operands):
        alike = operands[0].is_dense
    else:
        widest = largest(op.outputs or op.inputs)
        alike = all(
            tensor.dtype == widest.dtype and tensor.is_dense and same_order(tensor, widest)
            for tensor in operands
            if tensor.items > 1
        )
    if base == "pow" and op.attributes.get("exponent") in (2, 3, 0.5, 2.0, 3.0):
        base = "mul"
    family = "elementwise_strided" if not alike else "elementwise_heavy" if base in HEAVY else "elementwise"
    return [stream(family, op)]


def copy(op: Op) -> list[Kernel]:
    source = op.inputs[-1] if op.name == "copy_" else op.inputs[0]
    target = op.outputs[0] if op.outputs else op.inputs[0]
    if op.attributes.get("link"):
        kernel = stream(str(op.attributes["link"]), op, inputs=(source,), outputs=())
        return [kernel]
    if source.dtype != target.dtype:
        dense = source.is_dense and target.is_dense and same_order(source, target)
        return [stream("elementwise" if dense else "elementwise_strided", op, (source,), (target,))]
    if source.is_dense and target.is_dense and same_order(source, target):
        return [stream("copy", op, (source,), (target,))]
    inner = [
        (stride, size)
        for stride, size in zip(source.strides, source.shape, strict=True)
        if size > 1 and stride
    ]
    order = [
        (stride, size)
        for stride, size in zip(target.strides, target.shape, strict=True)
        if size > 1 and stride
    ]
    transposed = bool(inner) and bool(order) and inner and inner_dim(source) != inner_dim(target)
    return [stream("copy_transposed" if transposed else "elementwise_strided", op, (source,), (target,))]


def foreach(op: Op) -> list[Kernel]:
    depth = max(1, len(op.lists) or 1)
    count = op.lists[0] if op.lists else len(op.inputs)
    first = op.inputs[:count] or op.outputs
    if not first:
        return []
    base = op.name.removeprefix("_foreach_")
    if base.startswith("_fused_"):
        depth = 4
    written = moved_bytes(op.outputs) if op.outputs else moved_bytes(first)
    if op.name.startswith("_fused_"):
        # Parameters, both moments (gradients are only read).
        written = 3 * moved_bytes(first)
    slots = TENSORS_PER_LAUNCH[min(depth + (1 if op.outputs else 0), 5)]
    launches, tensors, chunks = 0, 0, 0
    for tensor in first:
        pieces = math.ceil(tensor.items / CHUNK_ITEMS)
        tensors += 1
        chunks += pieces
        while chunks >= CHUNKS_PER_LAUNCH or tensors >= slots:
            launches += 1
            chunks = max(0, chunks - CHUNKS_PER_LAUNCH)
            tensors = 1 if chunks else 0
    launches += 1 if tensors else 0
    read = moved_bytes(op.inputs)
    items = float(sum(tensor.items for tensor in first))
    item_bytes = first[0].item_bytes
    return [
        Kernel(
            "foreach",
            first[0].dtype,
            read,
            written,
            read + written / 2,
            items,
            launches=launches,
            item_bytes=item_bytes,
        )
    ]


def embedding(op: Op) -> list[Kernel]:
    out = op.outputs[0]
    # Only the rows asked for are read.
    table = Tensor.dense(out.dtype, *out.shape)
    return [stream("gather", op, inputs=(table, *op.inputs[1:]))]


def embedding_backward(op: Op) -> list[Kernel]:
    grad, indices = op.inputs[0], op.inputs[1]
    out = op.outputs[0]
    kernels = [stream("fill", op, inputs=(), outputs=(out,))]
    touched = Tensor.dense(out.dtype, *grad.shape)
    if indices.items > UNSORTED_INDICES:
        keys = stream("sort", op, (indices, indices), (indices, indices))
        kernels.append(keys._replace(launches=SORT_LAUNCHES))
    kernels.append(stream("scatter", op, (grad, indices), (touched,), items=float(grad.items)))
    return kernels


def sort(op: Op) -> list[Kernel]:
    return [stream("sort", op)._replace(launches=4 if op.inputs[0].shape[-1:] <= (4096,) else SORT_LAUNCHES)]


def scatter(op: Op) -> list[Kernel]:
    return [stream("scatter", op, inputs=op.inputs[1:])]


def dropout(op: Op) -> list[Kernel]:
    return [stream("dropout", op)]


def concatenate(op: Op) -> list[Kernel]:
    return [stream("concatenate", op)] if op.outputs and op.outputs[0].items else []


def scan(op: Op) -> list[Kernel]:
    return [stream("scan", op)]


def fill(op: Op) -> list[Kernel]:
    return [stream("fill", op, inputs=())]


def random(op: Op) -> list[Kernel]:
    return [stream("random", op, inputs=())]


def item(op: Op) -> list[Kernel]:
    return [stream("device_to_host", op, outputs=())]
