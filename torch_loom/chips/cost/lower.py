"""From an op to the kernels that a GPU-like chip's libraries run for it.

What is written here is how the libraries split ops, not how fast they are: a bias gradient is a reduction
across rows, a convolution of channels-first half-precision operands converts their layout, an optimizer's
list is cut into chunks. An op without an entry goes by its shape class in the op table; an op that is not
there moves the bytes of its operands once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch_loom.chips.cost.lowerings import data, products, rows
from torch_loom.chips.cost.lowerings.common import moved_bytes, stream
from torch_loom.chips.cost.records import Kernel, Op
from torch_loom.ops import family_of

# All arguments that are read here, beside tensors: ops that differ in others have the same cost.
ATTRIBUTES = (
    *("dim", "exponent", "groups", "is_causal", "kernel_size", "normalized_shape", "output_mask", "stride"),
    *("train", "training", "transposed"),
)

Lowering = Callable[[Op], list[Kernel]]


def lower(op: Op) -> list[Kernel]:
    """Return the kernels of an op, in the order in which they run; none for a view or an empty result."""
    name = op.name
    family = family_of(name)
    if family.shape_class == "view" or family.name == "memory without contents":
        return []
    entry = _LOWERINGS.get(name) or _LOWERINGS.get(name.removesuffix("_"))
    if entry is not None:
        return [kernel for kernel in entry(op) if kernel.launches]
    if name.startswith(("_foreach_", "_fused_")):
        return data.foreach(op)
    if not moved_bytes(op.inputs) + moved_bytes(op.outputs):
        return []
    if family.shape_class == "linear_algebra":
        return products.linear_algebra(op, family)
    if family.shape_class == "reduction" and rows.shrinks(op):
        return rows.reduction(op)
    if family.name == "fills":
        return [stream("fill", op, inputs=())]
    if family.shape_class == "random":
        return [stream("random", op, inputs=())]
    return [data.elementwise(op)]


_LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(
        ("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot"),
        products.matmul,
    ),
    **dict.fromkeys(("_scaled_mm", "_scaled_mm_v2"), products.scaled_matmul),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2"), products.grouped_matmul),
    **dict.fromkeys(
        ("_sparse_semi_structured_mm", "_sparse_semi_structured_addmm", "_cslt_sparse_mm"),
        products.semi_structured_matmul,
    ),
    "_sparse_semi_structured_linear": products.semi_structured_linear,
    "linear": products.linear,
    **dict.fromkeys(
        ("convolution", "_convolution", "cudnn_convolution", "conv2d", "convolution_overrideable"),
        products.convolution,
    ),
    **dict.fromkeys(
        ("convolution_backward", "convolution_backward_overrideable"), products.convolution_backward
    ),
    **dict.fromkeys(("clone", "contiguous", "_to_copy", "copy", "copy_", "_copy_from", "to"), data.copy),
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax", "softmax", "log_softmax"), rows.softmax),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), rows.softmax),
    **dict.fromkeys(("native_layer_norm", "layer_norm", "_fused_rms_norm", "rms_norm"), rows.layer_norm),
    **dict.fromkeys(("native_layer_norm_backward", "_fused_rms_norm_backward"), rows.layer_norm_backward),
    "native_group_norm": lambda op: rows.layer_norm(op._replace(attributes={})),
    "native_group_norm_backward": lambda op: rows.layer_norm_backward(op._replace(attributes={})),
    **dict.fromkeys(
        ("native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit", "batch_norm"), rows.batch_norm
    ),
    **dict.fromkeys(("native_batch_norm_backward", "cudnn_batch_norm_backward"), rows.batch_norm_backward),
    **dict.fromkeys(
        (
            "max_pool2d_with_indices",
            "max_pool2d",
            "avg_pool2d",
            "_adaptive_avg_pool2d",
            "max_pool3d_with_indices",
        ),
        rows.pooling,
    ),
    **dict.fromkeys(
        ("max_pool2d_with_indices_backward", "avg_pool2d_backward", "_adaptive_avg_pool2d_backward"),
        rows.pooling,
    ),
    **dict.fromkeys(("embedding", "index_select", "index", "gather", "take"), data.embedding),
    "embedding_dense_backward": data.embedding_backward,
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
        data.scatter,
    ),
    **dict.fromkeys(("sort", "argsort", "topk", "kthvalue", "unique", "_unique2", "msort"), data.sort),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"), data.scan),
    **dict.fromkeys(("native_dropout", "_fused_dropout"), data.dropout),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_fused_attention_overrideable",
            "scaled_dot_product_attention",
        ),
        products.attention,
    ),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_fused_attention_overrideable_backward",
        ),
        products.attention_backward,
    ),
    **dict.fromkeys(("cat", "stack", "_foreach_cat"), data.concatenate),
    "_local_scalar_dense": data.item,
}
