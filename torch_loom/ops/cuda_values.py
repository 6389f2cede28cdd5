"""Values that CUDA's kernels define otherwise than the CPU's, which hold under the device name cuda.

Their kernels are ``csrc/torch/cuda/values.cpp``. Imports nothing of PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CudaValue:
    """A value that depends on whose kernel computes it.

    Attributes:
        ops: names without the namespace ``aten``; each stands for its overloads.
        where: which calls.
        value: what CUDA returns.
        source: where that is documented or reported.
    """

    ops: tuple[str, ...]
    where: str
    value: str
    source: str


_PYTORCH = "pytorch/pytorch"

CUDA_VALUES: tuple[CudaValue, ...] = (
    CudaValue(
        ("copy_",),
        "NaN and numbers out of range, from a floating dtype to int32 or int64",
        "the end of the range that is nearer; of NaN 0, and from float64 or to int64 the least number",
        f"{_PYTORCH}#140347; PTX ISA, cvt: conversions from floating point to integers",
    ),
    CudaValue(
        ("div", "div_"),
        "a tensor of a real floating dtype, or of integers, divided by a Python number, exactly or truncated",
        "the product with the reciprocal, which is rounded first",
        f"{_PYTORCH}#186618; BinaryDivTrueKernel.cu",
    ),
    CudaValue(
        ("fmax", "fmin", "maximum", "minimum"),
        "integers, with an `out` of another integer dtype",
        "operands are converted to that dtype before they are compared",
        f"{_PYTORCH}#181805; MaxMinElementwiseKernel.cu",
    ),
    CudaValue(
        ("linspace",),
        "an integer dtype",
        "a step in float32, from the start in the lower half and back from the end in the upper",
        f"{_PYTORCH}#170168; RangeFactories.cu",
    ),
    CudaValue(
        ("remainder", "remainder_"),
        "integers by zero",
        "-1: all bits are set",
        f"{_PYTORCH}#116968",
    ),
    CudaValue(
        ("sort",),
        "2 to 32 elements in the dimension, unless `stable=True`",
        "equal elements in the order that a bitonic network leaves",
        f"{_PYTORCH}#127196; SortUtils.cuh",
    ),
    CudaValue(
        ("topk",),
        "equal elements",
        "what is beyond the k-th value in the order of indices, then what equals it; up to 32 then go "
        "through the bitonic network, more through a stable sort",
        f"{_PYTORCH}#127196; TensorTopK.cu, SortUtils.cuh",
    ),
)
"""All of them. Random numbers are another matter: ``csrc/torch/random``."""
