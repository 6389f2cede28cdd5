"""From an op to the kernels that a GPU-like chip's libraries run for it.

What is written here is how the libraries split ops, not how fast they are: a bias gradient is a reduction
across rows, a convolution of channels-first half-precision operands converts their layout, an optimizer's
list is cut into chunks. An op without an entry moves the bytes of its operands once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from torch_loom.chips.cost.records import Kernel, Op, Tensor

__all__ = ["ATTRIBUTES", "lower"]

# All arguments that are read here, beside tensors: ops that differ in others have the same cost.
ATTRIBUTES = (
    *("dim", "exponent", "groups", "is_causal", "kernel_size", "normalized_shape", "output_mask", "stride"),
    *("train", "training", "transposed"),
)

Lowering = Callable[[Op], list[Kernel]]

# A list of tensors is cut into chunks of so many elements, a launch takes so many chunks,
# and so many tensors by how many lists there are: what fits into the arguments of one kernel.
CHUNK_ITEMS = 65_536
CHUNKS_PER_LAUNCH = 320
TENSORS_PER_LAUNCH = (0, 110, 64, 48, 36, 30)

# Longer rows of a softmax do not fit into the registers of one warp.
WARP_COLUMNS = 1024
# So many indices are scattered at once; more are sorted first.
UNSORTED_INDICES = 3072

NARROW = frozenset(
    ("float16", "bfloat16", "int8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
)
NOTHING = frozenset(
    [
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "empty_permuted",
        "resize_",
        "set_",
        "record_stream",
        "lift",
        "lift_fresh",
        "detach",
        "alias",
        "view",
        "_unsafe_view",
        "as_strided",
        "expand",
        "t",
        "transpose",
        "permute",
    ]
)
HEAVY = frozenset(
    [
        "exp",
        "exp2",
        "expm1",
        "log",
        "log1p",
        "log2",
        "log10",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "erf",
        "erfc",
        "erfinv",
        "gelu",
        "silu",
        "mish",
        "elu",
        "sigmoid",
        "softplus",
        "logit",
        "pow",
        "tanh_backward",
        "gelu_backward",
        "silu_backward",
        "sigmoid_backward",
        "softplus_backward",
        "elu_backward",
        "mish_backward",
        "lgamma",
        "digamma",
        "logaddexp",
        "atan2",
        "fmod",
        "remainder",
        "floor_divide",
        "special_erfcx",
    ]
)
FILLS = frozenset(
    [
        "zeros",
        "ones",
        "full",
        "zeros_like",
        "ones_like",
        "full_like",
        "fill_",
        "fill",
        "zero_",
        "zero",
        "new_zeros",
        "new_ones",
        "new_full",
        "arange",
        "scalar_tensor",
        "linspace",
        "eye",
        "tril_indices",
        "triu_indices",
    ]
)
RANDOM = frozenset(
    [
        "bernoulli_",
        "bernoulli",
        "uniform_",
        "normal_",
        "normal",
        "rand",
        "randn",
        "rand_like",
        "randn_like",
        "randint",
        "randperm",
        "random_",
        "exponential_",
        "multinomial",
    ]
)
REDUCTIONS = frozenset(
    [
        "sum",
        "mean",
        "amax",
        "amin",
        "max",
        "min",
        "prod",
        "var",
        "std",
        "var_mean",
        "std_mean",
        "norm",
        "linalg_vector_norm",
        "any",
        "all",
        "argmax",
        "argmin",
        "logsumexp",
        "nansum",
        "count_nonzero",
    ]
)


def lower(op: Op) -> list[Kernel]:
    """Return the kernels of an op, in the order in which they run; none for a view or an empty result."""
    name = op.name
    if name in NOTHING:
        return []
    if name.startswith(("_foreach_", "_fused_")):
        return _foreach(op)
    entry = _LOWERINGS.get(name) or _LOWERINGS.get(name.removesuffix("_"))
    if entry is not None:
        return [kernel for kernel in entry(op) if kernel.launches]
    if not _moved(op.inputs) + _moved(op.outputs):
        return []
    base = name.removesuffix("_")
    if base in REDUCTIONS:
        return _reduction(op)
    if base in FILLS or name in FILLS:
        return [_stream("fill", op, inputs=())]
    if base in RANDOM or name in RANDOM:
        return [_stream("random", op, inputs=())]
    return [_elementwise(op)]


def _moved(tensors: Sequence[Tensor]) -> float:
    return float(sum(tensor.memory_bytes for tensor in tensors))


def _widest(tensors: Sequence[Tensor]) -> Tensor:
    return max(tensors, key=lambda tensor: tensor.items)


def _whole(value: object, default: int = 0) -> int:
    return value if isinstance(value, int) else default


def _list(value: object, rank: int, default: int) -> list[int]:
    if isinstance(value, int):
        return [value] * rank
    if isinstance(value, (list, tuple)) and value:
        found = [_whole(item, default) for item in value]
        return found if len(found) == rank else [found[0]] * rank
    return [default] * rank


def _stream(
    family: str,
    op: Op,
    inputs: Sequence[Tensor] | None = None,
    outputs: Sequence[Tensor] | None = None,
    items: float | None = None,
) -> Kernel:
    inputs = op.inputs if inputs is None else inputs
    outputs = op.outputs if outputs is None else outputs
    read, written = _moved(inputs), _moved(outputs)
    # What is written in place was read before; its memory counts once.
    same = written if op.name.endswith("_") and inputs else 0.0
    widest = _widest([*outputs, *inputs])
    return Kernel(
        family,
        widest.dtype,
        read,
        written,
        max(read + written - same, 1.0),
        items=float(widest.items) if items is None else items,
        item_bytes=widest.item_bytes,
    )


def _elementwise(op: Op) -> Kernel:
    base = op.name.removesuffix("_")
    operands = [tensor for tensor in (*op.inputs, *op.outputs) if tensor.items > 1]
    widest = _widest(op.outputs or op.inputs)
    alike = all(
        tensor.dtype == widest.dtype and tensor.is_dense and _same_order(tensor, widest)
        for tensor in operands
    )
    if base == "pow" and op.attributes.get("exponent") in (2, 3, 0.5, 2.0, 3.0):
        base = "mul"
    family = "elementwise_strided" if not alike else "elementwise_heavy" if base in HEAVY else "elementwise"
    return _stream(family, op)


def _same_order(first: Tensor, second: Tensor) -> bool:
    """Whether two operands are walked through in the same order: else a broadcast or a transposition."""
    if first.items != second.items:
        return False
    return first.strides == second.strides or (first.is_contiguous and second.is_contiguous)


def _copy(op: Op) -> list[Kernel]:
    source = op.inputs[-1] if op.name == "copy_" else op.inputs[0]
    target = op.outputs[0] if op.outputs else op.inputs[0]
    if op.attributes.get("link"):
        kernel = _stream(str(op.attributes["link"]), op, inputs=(source,), outputs=())
        return [kernel]
    if source.dtype != target.dtype:
        dense = source.is_dense and target.is_dense and _same_order(source, target)
        return [_stream("elementwise" if dense else "elementwise_strided", op, (source,), (target,))]
    if source.is_dense and target.is_dense and _same_order(source, target):
        return [_stream("copy", op, (source,), (target,))]
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
    transposed = bool(inner) and bool(order) and inner and _inner_dim(source) != _inner_dim(target)
    return [_stream("copy_transposed" if transposed else "elementwise_strided", op, (source,), (target,))]


def _inner_dim(tensor: Tensor) -> int:
    """Return the dimension along which neighbours lie next to each other in memory."""
    steps = [
        (stride, -dim)
        for dim, (stride, size) in enumerate(zip(tensor.strides, tensor.shape, strict=True))
        if size > 1 and stride
    ]
    return -min(steps)[1] if steps else 0


def _foreach(op: Op) -> list[Kernel]:
    depth = max(1, len(op.lists) or 1)
    count = op.lists[0] if op.lists else len(op.inputs)
    first = op.inputs[:count] or op.outputs
    if not first:
        return []
    base = op.name.removeprefix("_foreach_")
    if base.startswith("_fused_"):
        depth = 4
    written = _moved(op.outputs) if op.outputs else _moved(first)
    if op.name.startswith("_fused_"):
        # Parameters, both moments (gradients are only read).
        written = 3 * _moved(first)
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
    read = _moved(op.inputs)
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


def _matmul_kernels(
    dtype: str, batch: int, m: int, n: int, k: int, extra: float = 0.0, aligned: bool = True
) -> list[Kernel]:
    from_dtype = Tensor.dense(dtype, 1).item_bytes
    read = float(batch * (m * k + k * n)) * from_dtype + extra
    written = float(batch * m * n) * from_dtype
    if not batch * m * n:
        return []
    if (m == 1 or n == 1) and batch == 1:
        return [
            Kernel(
                "vector_product",
                dtype,
                read,
                written,
                read + written,
                float(m * n * k),
                item_bytes=from_dtype,
            )
        ]
    family = "matmul" if dtype in NARROW else "matmul_vector"
    return [
        Kernel(
            *(family, dtype, read, written, read + written),
            m=m,
            n=n,
            k=max(k, 1),
            batch=batch,
            aligned=aligned,
            item_bytes=from_dtype,
            epilogue=extra > 0.0,
        )
    ]


def _leading_aligned(tensor: Tensor) -> bool:
    steps = [
        stride for stride, size in zip(tensor.strides, tensor.shape, strict=True) if size > 1 and stride > 1
    ]
    return all(stride * tensor.item_bytes % 16 == 0 for stride in steps)


def _mm(op: Op) -> list[Kernel]:
    left, right = op.inputs[-2], op.inputs[-1]
    bias = _moved(op.inputs[:-2])
    batch = left.shape[0] if len(left.shape) == 3 else 1
    m, k = (left.shape[-2], left.shape[-1]) if len(left.shape) > 1 else (1, left.shape[-1])
    n = right.shape[-1] if len(right.shape) > 1 else 1
    out = op.outputs[0] if op.outputs else op.inputs[0]
    aligned = all(_leading_aligned(tensor) for tensor in (left, right, out))
    return _matmul_kernels(left.dtype, batch, m, n, k, bias, aligned)


def _convolution(op: Op) -> list[Kernel]:
    source, weight = op.inputs[0], op.inputs[1]
    if op.attributes.get("transposed"):
        # The gradient of a convolution with the roles of input and output exchanged.
        return _convolution_like("convolution_backward", op.outputs[0], weight, source, op, forward=False)
    return _convolution_like("convolution", source, weight, op.outputs[0], op, forward=True)


def _convolution_like(
    family: str, source: Tensor, weight: Tensor, out: Tensor, op: Op, forward: bool, wgrad: bool = False
) -> list[Kernel]:
    groups = max(1, _whole(op.attributes.get("groups"), 1))
    window = math.prod(weight.shape[2:])
    channels, outputs = source.shape[1] // groups, weight.shape[0] // groups
    positions = out.shape[0] * math.prod(out.shape[2:])
    tensors = (source, weight, out)
    moved = _moved(tensors)
    written = weight if wgrad else out if forward else source
    read = moved - written.memory_bytes
    common: dict[str, Any] = {"item_bytes": source.item_bytes}
    if channels == 1 and groups > 1:
        items = float(out.items if forward or wgrad else source.items) * window
        name = "depthwise_convolution" if forward else "depthwise_convolution_backward"
        return [Kernel(name, source.dtype, read, float(written.memory_bytes), moved, items, **common)]
    narrow = source.dtype in NARROW
    kernels = []
    if narrow:
        # Matrix units want channels innermost, in multiples of 8.
        channels = math.ceil(channels / 8) * 8
    pointwise = window == 1 and math.prod(_list(op.attributes.get("stride"), 2, 1)) == 1
    if narrow and not pointwise and source.is_contiguous:
        kernels += [
            Kernel(
                "layout",
                source.dtype,
                float(tensor.memory_bytes),
                float(tensor.memory_bytes),
                2.0 * tensor.memory_bytes,
                **common,
            )
            for tensor in tensors
        ]
    if wgrad:
        m, n, k = outputs, channels * window, positions
    elif forward:
        m, n, k = positions, outputs, channels * window
    else:
        # Where the stride skips positions, the gradient's products do too.
        m, n, k = source.items // source.shape[1], channels, outputs * window
        k = max(1, round(k * positions / max(1, m)))
    name = family if narrow else f"{family}_vector"
    kernels.append(
        Kernel(
            *(name, source.dtype, read, float(written.memory_bytes), moved),
            **{"m": m, "n": n, "k": k, "batch": groups, **common},
        )
    )
    return kernels


def _convolution_backward(op: Op) -> list[Kernel]:
    grad, source, weight = op.inputs[0], op.inputs[1], op.inputs[2]
    mask = op.attributes.get("output_mask")
    wanted = list(mask) if isinstance(mask, (list, tuple)) else [True, True, False]
    kernels = []
    if wanted[0]:
        kernels += _convolution_like("convolution_backward", source, weight, grad, op, forward=False)
    if wanted[1]:
        kernels += _convolution_like(
            "convolution_backward", source, weight, grad, op, forward=False, wgrad=True
        )
    if len(wanted) > 2 and wanted[2]:
        kernels += _column_sum(grad, grad.shape[1])
    return kernels


def _column_sum(tensor: Tensor, kept: int) -> list[Kernel]:
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


def _reduction(op: Op) -> list[Kernel]:
    source = _widest(op.inputs)
    kept = max(1, op.outputs[0].items if op.outputs else 1)
    if source.items == 0:
        return [_stream("fill", op, inputs=())]
    size, written = float(source.memory_bytes), _moved(op.outputs)
    if kept == 1:
        return [
            Kernel(
                *("reduce_all", source.dtype, size, written, size + written, float(source.items)),
                item_bytes=source.item_bytes,
            )
        ]
    dims = op.attributes.get("dim")
    rank = len(source.shape)
    reduced = {dim % rank for dim in _list(dims, 0, -1) or [rank - 1]} if dims is None else set()
    if dims is not None:
        found = [dims] if isinstance(dims, int) else list(cast(Sequence[int], dims))
        reduced = {int(dim) % rank for dim in found} or set(range(rank))
    family = "reduce_rows" if _inner_dim(source) in reduced else "reduce_columns"
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
    main = _widest(reads)
    read, written = _moved(reads), _moved(writes)
    return Kernel(
        *(family, main.dtype, read, written, read + written, float(main.items)),
        rows=main.items // max(1, columns),
        columns=columns,
        item_bytes=main.item_bytes,
    )


def _made_contiguous(*tensors: Tensor) -> list[Kernel]:
    """Return the copies that a kernel makes first of operands that it cannot walk through."""
    kernels = []
    for tensor in tensors:
        if tensor.items and not tensor.is_contiguous:
            dense = Tensor.dense(tensor.dtype, *tensor.shape)
            kernels += _copy(Op("clone", (tensor,), (dense,)))
    return kernels


def _softmax(op: Op) -> list[Kernel]:
    source = op.inputs[0]
    dim = _whole(op.attributes.get("dim"), -1)
    columns = source.shape[dim] if source.shape else 1
    if not source.items:
        return []
    if "backward" in op.name:
        row = _row_kernel("softmax_backward", op, columns, op.inputs[:2], op.outputs)
        return [*_made_contiguous(*op.inputs[:2]), row]
    family = "softmax" if columns <= WARP_COLUMNS else "softmax_long"
    return [*_made_contiguous(source), _row_kernel(family, op, columns, op.inputs[:1], op.outputs)]


def _layer_norm(op: Op) -> list[Kernel]:
    source = op.inputs[0]
    shape = op.attributes.get("normalized_shape")
    columns = math.prod(_list(shape, len(cast(Sequence[int], shape)), 1)) if shape else source.shape[-1]
    if not source.items:
        return []
    return [*_made_contiguous(source), _row_kernel("layer_norm", op, columns, op.inputs, op.outputs)]


def _layer_norm_backward(op: Op) -> list[Kernel]:
    grad, source = op.inputs[0], op.inputs[1]
    shape = op.attributes.get("normalized_shape")
    columns = math.prod(_list(shape, len(cast(Sequence[int], shape)), 1)) if shape else source.shape[-1]
    kernels = _made_contiguous(grad, source)
    kernels.append(_row_kernel("layer_norm_backward", op, columns, (grad, source), (source,)))
    if len(op.outputs) > 1:
        kernels += [
            kernel._replace(read_bytes=_moved((grad, source)), footprint_bytes=_moved((grad, source)))
            for kernel in _column_sum(source, columns)
        ]
    return kernels


def _batch_norm(op: Op) -> list[Kernel]:
    source = op.inputs[0]
    passes = 2 if op.attributes.get("training", op.attributes.get("train", True)) else 1
    out = op.outputs[0] if op.outputs else source
    kernel = _stream("batch_norm", op, (source,), (out,))
    if passes == 1:
        return [kernel._replace(family="batch_norm_inference")]
    return [kernel._replace(read_bytes=kernel.read_bytes * 2)]


def _batch_norm_backward(op: Op) -> list[Kernel]:
    grad, source = op.inputs[0], op.inputs[1]
    kernel = _stream("batch_norm_backward", op, (grad, source), (source,))
    return [kernel._replace(read_bytes=kernel.read_bytes * 2)]


def _pooling(op: Op) -> list[Kernel]:
    window = math.prod(_list(op.attributes.get("kernel_size"), 2, 1))
    backward = "backward" in op.name
    out = op.outputs[0]
    if op.name.startswith("_adaptive") or op.name.startswith("adaptive"):
        window = max(1, op.inputs[0].items // max(1, out.items))
    family = "pooling_backward" if backward else "pooling"
    return [_stream(family, op, items=float(out.items * window))]


def _embedding(op: Op) -> list[Kernel]:
    out = op.outputs[0]
    # Only the rows asked for are read.
    table = Tensor.dense(out.dtype, *out.shape)
    return [_stream("gather", op, inputs=(table, *op.inputs[1:]))]


def _embedding_backward(op: Op) -> list[Kernel]:
    grad, indices = op.inputs[0], op.inputs[1]
    out = op.outputs[0]
    kernels = [_stream("fill", op, inputs=(), outputs=(out,))]
    touched = Tensor.dense(out.dtype, *grad.shape)
    if indices.items > UNSORTED_INDICES:
        keys = _stream("sort", op, (indices, indices), (indices, indices))
        kernels.append(keys._replace(launches=SORT_LAUNCHES))
    kernels.append(_stream("scatter", op, (grad, indices), (touched,), items=float(grad.items)))
    return kernels


# Keys, digits by eight passes, segments, offsets: what sorting indices takes.
SORT_LAUNCHES = 12


def _sort(op: Op) -> list[Kernel]:
    return [_stream("sort", op)._replace(launches=4 if op.inputs[0].shape[-1:] <= (4096,) else SORT_LAUNCHES)]


def _scatter(op: Op) -> list[Kernel]:
    return [_stream("scatter", op, inputs=op.inputs[1:])]


def _dropout(op: Op) -> list[Kernel]:
    return [_stream("dropout", op)]


def _attention_shape(query: Tensor, key: Tensor, op: Op) -> dict[str, object]:
    causal = bool(op.attributes.get("is_causal"))
    queries, keys = query.shape[-2], key.shape[-2]
    share = 1.0
    if causal and queries:
        # Blocks that are masked out whole are left out.
        share = min(1.0, 0.5 + 32.0 / max(queries, 1))
    return {
        "m": queries,
        "n": keys,
        "k": query.shape[-1],
        "batch": math.prod(query.shape[:-2]),
        "items": share,
        "item_bytes": query.item_bytes,
    }


def _attention(op: Op) -> list[Kernel]:
    query, key = op.inputs[0], op.inputs[1]
    if not query.items:
        return []
    family = "attention" if query.dtype in NARROW else "attention_vector"
    read, written = _moved(op.inputs), _moved(op.outputs[:1])
    return [
        Kernel(family, query.dtype, read, written, read + written, **_attention_shape(query, key, op))  # type: ignore[arg-type]
    ]


def _attention_backward(op: Op) -> list[Kernel]:
    grad, query, key, value = op.inputs[0], op.inputs[1], op.inputs[2], op.inputs[3]
    if not query.items:
        return []
    narrow = query.dtype in NARROW
    family = "attention_backward" if narrow else "attention_backward_vector"
    read = _moved((grad, query, key, value)) + grad.memory_bytes
    written = _moved((query, key, value))
    whole = Kernel(family, query.dtype, read, written, read + written, **_attention_shape(query, key, op))  # type: ignore[arg-type]
    # The row sums of gradient times output, before the products.
    delta = _stream("elementwise", op, (grad, query), (query,))
    kernels = [delta, whole]
    if narrow:
        kernels.append(_stream("elementwise", op, (query, query), (query,)))
    return kernels


def _concatenate(op: Op) -> list[Kernel]:
    return [_stream("concatenate", op)] if op.outputs and op.outputs[0].items else []


def _scan(op: Op) -> list[Kernel]:
    return [_stream("scan", op)]


def _item(op: Op) -> list[Kernel]:
    return [_stream("device_to_host", op, outputs=())]


_LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(
        ("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "_scaled_mm", "linear"), _mm
    ),
    **dict.fromkeys(
        ("convolution", "_convolution", "cudnn_convolution", "conv2d", "convolution_overrideable"),
        _convolution,
    ),
    **dict.fromkeys(("convolution_backward", "convolution_backward_overrideable"), _convolution_backward),
    **dict.fromkeys(("clone", "contiguous", "_to_copy", "copy", "copy_", "_copy_from", "to"), _copy),
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax", "softmax", "log_softmax"), _softmax),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _softmax),
    **dict.fromkeys(("native_layer_norm", "layer_norm", "_fused_rms_norm", "rms_norm"), _layer_norm),
    **dict.fromkeys(("native_layer_norm_backward", "_fused_rms_norm_backward"), _layer_norm_backward),
    "native_group_norm": lambda op: _layer_norm(op._replace(attributes={})),
    "native_group_norm_backward": lambda op: _layer_norm_backward(op._replace(attributes={})),
    **dict.fromkeys(
        ("native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit", "batch_norm"), _batch_norm
    ),
    **dict.fromkeys(("native_batch_norm_backward", "cudnn_batch_norm_backward"), _batch_norm_backward),
    **dict.fromkeys(
        (
            "max_pool2d_with_indices",
            "max_pool2d",
            "avg_pool2d",
            "_adaptive_avg_pool2d",
            "max_pool3d_with_indices",
        ),
        _pooling,
    ),
    **dict.fromkeys(
        ("max_pool2d_with_indices_backward", "avg_pool2d_backward", "_adaptive_avg_pool2d_backward"), _pooling
    ),
    **dict.fromkeys(("embedding", "index_select", "index", "gather", "take"), _embedding),
    "embedding_dense_backward": _embedding_backward,
    **dict.fromkeys(
        (
            "index_put",
            "_index_put_impl",
            "index_add",
            "scatter",
            "scatter_add",
            "scatter_reduce",
            "index_copy",
        ),
        _scatter,
    ),
    **dict.fromkeys(("sort", "argsort", "topk", "kthvalue", "unique", "_unique2", "msort"), _sort),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"), _scan),
    **dict.fromkeys(("native_dropout", "_fused_dropout"), _dropout),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_fused_attention_overrideable",
            "scaled_dot_product_attention",
        ),
        _attention,
    ),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_fused_attention_overrideable_backward",
        ),
        _attention_backward,
    ),
    **dict.fromkeys(("cat", "stack", "_foreach_cat"), _concatenate),
    "_local_scalar_dense": _item,
}
