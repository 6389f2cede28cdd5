"""Ops whose results change from run to run on a GPU: what ``torch.use_deterministic_algorithms`` lists.

Their kernels add with atomic operations, or choose among equals in the order in which threads arrive. A chip
says itself whether it is like that (``deterministic``).
"""

from __future__ import annotations

from dataclasses import dataclass

CASES: dict[str, str] = {
    "always": "every call",
    "floating": "its first operand is of floating point, or complex",
    "weights": "its second operand is given",
    "maximum": "its mode is 2, the maximum",
    "product": "its reduction is 'prod'",
    "blas": "a matrix product, under the name cuda: deterministic where CUBLAS_WORKSPACE_CONFIG says so",
}
"""When a call of an op raises; `tools/op_table.py` makes C++'s enumeration of it."""


@dataclass(frozen=True)
class Alert:
    """What a call of an op raises under ``torch.use_deterministic_algorithms(True)``.

    Attributes:
        kernel: what the message calls the op; CUDA's names, which tests look for.
        case: one of :data:`CASES`.
    """

    kernel: str
    case: str = "always"


def _pooling() -> dict[str, Alert]:
    names = {
        "_adaptive_avg_pool2d_backward": "adaptive_avg_pool2d_backward_cuda",
        "_adaptive_avg_pool3d_backward": "adaptive_avg_pool3d_backward_cuda",
        "adaptive_max_pool2d_backward": "adaptive_max_pool2d_backward_cuda",
        "avg_pool3d_backward": "avg_pool3d_backward_cuda",
        "fractional_max_pool2d_backward": "fractional_max_pool2d_backward_cuda",
        "fractional_max_pool3d_backward": "fractional_max_pool3d_backward_cuda",
        "max_unpool2d": "max_unpooling2d_forward_out",
        "max_unpool3d": "max_unpooling3d_forward_out",
    }
    return {op: Alert(kernel) for op, kernel in names.items()}


def _resampling() -> dict[str, Alert]:
    names = {
        "grid_sampler_2d_backward": "grid_sampler_2d_backward_cuda",
        "grid_sampler_3d_backward": "grid_sampler_3d_backward_cuda",
        "reflection_pad1d_backward": "reflection_pad1d_backward_out_cuda",
        "reflection_pad2d_backward": "reflection_pad2d_backward_cuda",
        "reflection_pad3d_backward": "reflection_pad3d_backward_out_cuda",
    }
    names |= {f"replication_pad{n}d_backward": f"replication_pad{n}d_backward_cuda" for n in (1, 2, 3)}
    modes = ("linear1d", "bilinear2d", "bicubic2d", "trilinear3d")
    names |= {f"upsample_{mode}_backward": f"upsample_{mode}_backward_out_cuda" for mode in modes}
    return {op: Alert(kernel) for op, kernel in names.items()}


ALERTS: dict[str, Alert] = {
    **_pooling(),
    **_resampling(),
    "_ctc_loss_backward": Alert("ctc_loss_backward_gpu"),
    "_embedding_bag_backward": Alert("embedding_bag_backward_cuda_max", "maximum"),
    "_embedding_bag_dense_backward": Alert("embedding_bag_backward_cuda_max", "maximum"),
    "bincount": Alert("_bincount_cuda", "weights"),
    "cumsum": Alert("cumsum_cuda_kernel", "floating"),
    "cumsum_": Alert("cumsum_cuda_kernel", "floating"),
    "histc": Alert("_histc_cuda with floating point input", "floating"),
    "median.dim": Alert("median CUDA with indices output"),
    "median.dim_values": Alert("median CUDA with indices output"),
    "nanmedian.dim": Alert("median CUDA with indices output"),
    "nanmedian.dim_values": Alert("median CUDA with indices output"),
    "nll_loss2d_forward": Alert("nll_loss2d_forward_out_cuda_template"),
    "put_": Alert("put_"),
    "scatter_reduce": Alert("scatter_reduce_cuda_prod_", "product"),
    "scatter_reduce_": Alert("scatter_reduce_cuda_prod_", "product"),
    **dict.fromkeys(
        (
            "mm",
            "addmm",
            "addmm_",
            "bmm",
            "baddbmm",
            "baddbmm_",
            "mv",
            "addmv",
            "addmv_",
            "dot",
            "vdot",
            "linear",
        ),
        Alert("", "blas"),
    ),
}
"""By the name of an op without ``aten::``; a name without an overload stands for all of them."""
