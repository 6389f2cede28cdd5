"""Products of matrices, convolutions, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch_loom.chips.cost.lowerings.common import MATRIX_UNITS, NARROW, as_int, as_list, moved_bytes, stream
from torch_loom.chips.cost.lowerings.rows import column_sum
from torch_loom.chips.cost.records import Kernel, Op, Tensor
from torch_loom.ops import family_of

_REAL = {"complex64": "float32", "complex128": "float64"}
PANEL_COLUMNS = 64
"""How many columns LAPACK's blocked algorithms factorise at a time, at most."""
COMPLEX_OPERATIONS = 4
"""Multiplications and additions of reals for each of complex numbers."""


def _matmul_kernels(
    dtype: str,
    batch: int,
    m: int,
    n: int,
    k: int,
    extra: float = 0.0,
    alignment: int = 16,
    is_inner: bool = False,
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
    on_matrix_units = dtype in MATRIX_UNITS
    family = "matmul" if on_matrix_units else "matmul_vector" if batch == 1 else "batched_matmul_vector"
    return [
        Kernel(
            *(family, dtype, read, written, read + written),
            items=float(is_inner),
            m=m,
            n=n,
            k=max(k, 1),
            batch=batch,
            alignment=alignment,
            item_bytes=from_dtype,
            epilogue=extra > 0.0,
        )
    ]


def _alignment(*tensors: Tensor) -> int:
    """Return the largest of 16, 8, 4 and 2 bytes at whose multiples the rows of all operands begin."""
    bits = 16
    for tensor in tensors:
        for stride, size in zip(tensor.strides, tensor.shape, strict=True):
            if size > 1 and stride > 1:
                bits |= stride * tensor.item_bytes
    return max(2, bits & -bits)


def _lies_along(tensor: Tensor, dim: int) -> bool:
    """Return whether a dimension's neighbours lie next to each other, and those of no other."""
    return tensor.strides[dim] == 1 and tensor.shape[dim] > 1


def linear_algebra(op: Op) -> list[Kernel]:
    """Factorisations and solves: products that do the op table's number of operations, panel by panel.

    LAPACK's blocked algorithms spend most of them in products, each of which waits for its panel of columns.
    """
    family = family_of(op.name)
    assert family.flops is not None  # every family of linear algebra has it
    matrix = op.inputs[family.matrix]
    flops = family.flops(matrix.shape, op.outputs[0].shape if op.outputs else ())
    rows, columns = matrix.shape[-2:] if len(matrix.shape) > 1 else (max(matrix.items, 1), 1)
    batch = max(1, matrix.items // max(rows * columns, 1))
    dtype = _REAL.get(matrix.dtype, matrix.dtype)
    if dtype != matrix.dtype:
        flops *= COMPLEX_OPERATIONS
    steps = max(1, math.ceil(min(rows, columns) / PANEL_COLUMNS))
    depth = max(1, round(flops / (2 * steps * batch * max(rows * columns, 1))))
    (kernel,) = _matmul_kernels(dtype, batch, max(rows, 1), max(columns, 1), depth)
    # What moves is the op's own operands, not those of such products.
    read, written = moved_bytes(op.inputs), moved_bytes(op.outputs)
    own = kernel._replace(
        read_bytes=read / steps, written_bytes=written / steps, footprint_bytes=max(read + written, 1.0)
    )
    return [own] * steps


def matmul(op: Op) -> list[Kernel]:
    left, right = op.inputs[-2], op.inputs[-1]
    bias = moved_bytes(op.inputs[:-2])
    m, k = (left.shape[-2], left.shape[-1]) if len(left.shape) > 1 else (1, left.shape[-1])
    n = right.shape[-1] if len(right.shape) > 1 else 1
    batch = math.prod(left.shape[:-2])
    if len(right.shape) < 3:
        # Rows of all batches are rows of one product.
        batch, m = 1, m * batch
    out = op.outputs[0] if op.outputs else op.inputs[0]
    alignment = _alignment(left, right, out)
    is_inner = len(right.shape) > 1 and _lies_along(left, -1) and _lies_along(right, -2)
    return _matmul_kernels(left.dtype, batch, m, n, k, bias, alignment, is_inner)


def scaled_matmul(op: Op) -> list[Kernel]:
    """Products whose scales stand behind the matrices."""
    left, right, scales = op.inputs[0], op.inputs[1], moved_bytes(op.inputs[2:])
    alignment = _alignment(left, right, op.outputs[0])
    return _matmul_kernels(left.dtype, 1, left.shape[0], right.shape[1], left.shape[1], scales, alignment)


def grouped_matmul(op: Op) -> list[Kernel]:
    """A product for each group; where groups are parts of a matrix, the parts count as equal."""
    left, right, others = op.inputs[0], op.inputs[1], moved_bytes(op.inputs[2:])
    m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
    out = op.outputs[0]
    is_left_3d, is_right_3d = len(left.shape) == 3, len(right.shape) == 3
    groups = max(1, (left if is_left_3d else right if is_right_3d else out).shape[0])
    if is_right_3d and not is_left_3d:
        m = math.ceil(m / groups)
    elif is_left_3d and not is_right_3d:
        n = math.ceil(n / groups)
    elif not is_left_3d:
        k = math.ceil(k / groups)
    alignment = _alignment(left, right, out)
    return _matmul_kernels(left.dtype, groups, m, n, k, others, alignment)


def semi_structured_matmul(op: Op) -> list[Kernel]:
    """Products with 2:4 matrices: as fast as those of whole matrices, but for what is not read.

    No chip's description says how much faster its matrix units are with them.
    """
    right = op.inputs[{"_cslt_sparse_mm": 1, "_sparse_semi_structured_addmm": 3}.get(op.name, 2)]
    m = op.outputs[0].items // max(right.shape[1], 1)
    return _semi_structured(op, right, m, right.shape[1], right.shape[0])


def semi_structured_linear(op: Op) -> list[Kernel]:
    source, weight = op.inputs[:2]
    return _semi_structured(
        op, source, weight.shape[0], source.items // max(source.shape[-1], 1), source.shape[-1]
    )


def _semi_structured(op: Op, dense: Tensor, m: int, n: int, k: int) -> list[Kernel]:
    read, written = moved_bytes(op.inputs), moved_bytes(op.outputs)
    alignment = _alignment(dense, op.outputs[0])
    return [
        kernel._replace(read_bytes=read, written_bytes=written, footprint_bytes=read + written)
        for kernel in _matmul_kernels(dense.dtype, 1, m, n, k, alignment=alignment)
    ]


def linear(op: Op) -> list[Kernel]:
    source, weight = op.inputs[:2]
    out = op.outputs[0] if op.outputs else op.inputs[0]
    alignment = _alignment(source, weight, out)
    m, (n, k) = math.prod(source.shape[:-1]), weight.shape if len(weight.shape) > 1 else (1, weight.shape[0])
    is_inner = _lies_along(source, -1) and _lies_along(weight, -1)
    return _matmul_kernels(source.dtype, 1, m, n, k, moved_bytes(op.inputs[2:]), alignment, is_inner)


FORWARD, OF_SOURCE, OF_WEIGHT = "", "_dgrad", "_wgrad"
# Gradients of depthwise weights of float32 have no kernel that works in tiles for larger windows (an H100 and
# an H200, by names).
TILED_WINDOW = 25
WINOGRAD_WINDOW = 9
# Planes of images that are no multiple of so many bytes are turned for products; sums over so few elements
# are made of pictures as they lie (by what an H200 allocated for calls, and the names of its kernels).
PRODUCT_ALIGNMENT, DIRECT_DEPTH = 8, 64
# Winograd's algorithms are for sums over so many channels, and images longer than this: by the names of the
# kernels that cuDNN 8.9 ran on a V100 and a T4 (NeuSight). Of the fitted half, 44 to 56 channels do alike.
WINOGRAD_CHANNELS, WINOGRAD_IMAGE = 48, 5


def convolution(op: Op) -> list[Kernel]:
    source, weight = op.inputs[0], op.inputs[1]
    if op.attributes.get("transposed"):
        # The gradient of a convolution with the roles of input and output exchanged.
        return _convolution(OF_SOURCE, op.outputs[0], weight, source, op)
    return _convolution(FORWARD, source, weight, op.outputs[0], op)


def _winograd_tiles(batch: int, height: int, width: int, size: int) -> int:
    return batch * -(-height // size) * -(-width // size)


def _is_last(tensor: Tensor) -> bool:
    """Return whether channels lie innermost."""
    return not tensor.is_contiguous and tensor.strides[1] == 1


def _convolution(role: str, source: Tensor, weight: Tensor, out: Tensor, op: Op) -> list[Kernel]:
    """Return the kernels of a convolution or one of its gradients: the class by window, dtype and layout."""
    groups = max(1, as_int(op.attributes.get("groups"), 1))
    window = math.prod(weight.shape[2:])
    channels, outputs = source.shape[1] // groups, weight.shape[0] // groups
    tensors = (source, weight, out)
    moved = moved_bytes(tensors)
    written = weight if role == OF_WEIGHT else source if role == OF_SOURCE else out
    read = moved - written.memory_bytes
    dtype, item_bytes = source.dtype, source.item_bytes
    if channels == 1 and groups > 1:
        items = float(source.items if role == OF_SOURCE else out.items) * window
        name = f"depthwise_last{role}" if _is_last(source) else f"depthwise{role or '_convolution'}"
        if name == "depthwise_last_wgrad" and dtype not in NARROW and window > TILED_WINDOW:
            name += "_direct"
        size = float(written.memory_bytes)
        return [Kernel(name, dtype, read, size, moved, items, item_bytes=item_bytes)]
    narrow, on_matrix_units = dtype in NARROW, dtype in MATRIX_UNITS
    steps = math.prod(as_list(op.attributes.get("stride"), 2, 1))
    is_last = _is_last(source) or _is_last(weight)
    turned: tuple[Tensor, ...] = ()
    is_few = narrow and groups == 1 and channels % 8 != 0
    if on_matrix_units and not is_last and not (is_few and channels * window <= DIRECT_DEPTH):
        # Matrix units want channels innermost; a window of one place that skips none is a product as it lies,
        # where it lies at multiples of so many bytes.
        is_product = steps == 1 and math.prod(out.shape[2:]) * item_bytes % PRODUCT_ALIGNMENT == 0
        turned = tensors if window > 1 else () if is_product else (source, out)
    elif not on_matrix_units and is_last and role != OF_WEIGHT:
        # Vector units want channels outermost, but for gradients of weights.
        turned = tensors if window > 1 else (source, out)
    kernels = []
    for tensor in turned:
        size = float(tensor.memory_bytes)
        items = float(tensor.items)
        kernels.append(Kernel("layout", dtype, size, size, 2.0 * size, items, item_bytes=item_bytes))
    if on_matrix_units:
        # In multiples of 16 bytes, too.
        grain = 8 if narrow else 4
        channels = -(-channels // grain) * grain
    positions = out.shape[0] * math.prod(out.shape[2:])
    if role == FORWARD:
        m, n, k = positions, outputs, channels * window
    elif role == OF_SOURCE:
        # Where the stride skips positions, the gradient's products do too.
        m, n = source.items // source.shape[1], channels
        k = max(1, round(outputs * window * positions / max(1, m)))
    else:
        m, n, k = outputs, channels * window, positions
    tiles = (0, 0)
    if not on_matrix_units and window == WINOGRAD_WINDOW and steps == 1 and len(weight.shape) == 4:
        height, width = (source if role == OF_SOURCE else out).shape[2:]
        summed = outputs if role == OF_SOURCE else channels
        if summed >= WINOGRAD_CHANNELS and min(height, width) > WINOGRAD_IMAGE:
            count = out.shape[0]
            tiles = (_winograd_tiles(count, height, width, 2), _winograd_tiles(count, height, width, 4))
    name = f"convolution{'_few' if is_few else '_grouped' if groups > 1 else ''}{role}"
    if not narrow:
        name += "_tf32" if on_matrix_units else "_vector"
    size = float(written.memory_bytes)
    kernels.append(
        Kernel(
            *(name, dtype, read, size, moved, 0.0, *tiles, m, n, k, groups),
            item_bytes=item_bytes,
        )
    )
    return kernels


def convolution_backward(op: Op) -> list[Kernel]:
    grad, source, weight = op.inputs[0], op.inputs[1], op.inputs[2]
    mask = op.attributes.get("output_mask")
    wanted = list(mask) if isinstance(mask, (list, tuple)) else [True, True, False]
    kernels = []
    for is_wanted, role in zip(wanted, (OF_SOURCE, OF_WEIGHT), strict=False):
        if is_wanted:
            kernels += _convolution(role, source, weight, grad, op)
    if len(wanted) > 2 and wanted[2]:
        kernels += column_sum(grad, grad.shape[1])
    return kernels


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


def _has_mask(tensors: Sequence[Tensor], query: Tensor, key: Tensor) -> bool:
    """Return whether a tensor has an element for each query and key."""
    scores = query.shape[-2], key.shape[-2]
    return any(len(each.shape) > 2 and each.shape[-2:] == scores for each in tensors)


def attention(op: Op) -> list[Kernel]:
    query, key = op.inputs[0], op.inputs[1]
    if not query.items:
        return []
    family = "attention" if query.dtype in NARROW else "attention_vector"
    if query.dtype in NARROW and _has_mask(op.inputs[3:], query, key):
        family = "attention_masked"
    read, written = moved_bytes(op.inputs), moved_bytes(op.outputs[:1])
    return [
        Kernel(family, query.dtype, read, written, read + written, **_attention_shape(query, key, op))  # type: ignore[arg-type]
    ]


def attention_backward(op: Op) -> list[Kernel]:
    grad, query, key, value = op.inputs[0], op.inputs[1], op.inputs[2], op.inputs[3]
    if not query.items:
        return []
    narrow = query.dtype in NARROW
    family = "attention_backward" if narrow else "attention_backward_vector"
    read = moved_bytes((grad, query, key, value)) + grad.memory_bytes
    written = moved_bytes((query, key, value))
    whole = Kernel(family, query.dtype, read, written, read + written, **_attention_shape(query, key, op))  # type: ignore[arg-type]
    # The row sums of gradient times output, before the products.
    delta = stream("elementwise", op, (grad, query), (query,))
    kernels = [delta, whole]
    if narrow:
        kernels.append(stream("elementwise", op, (query, query), (query,)))
    return kernels
