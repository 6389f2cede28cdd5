"""Values that CUDA's kernels define otherwise than the CPU's, which hold under the device name cuda.

Their kernels are ``csrc/torch/cuda/values/values.cpp``. Imports nothing of PyTorch.
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
# Compared with results that cards gave: tests/cuda/card_values.json.
_CARDS = "an H200 and an H100, torch 2.11, bit for bit"
_CARD = "an H100, torch 2.11, bit for bit"
_CARD_BUT_LAST = "an H100, torch 2.11, but for last bits"


def _of_lists(*ops: str) -> tuple[str, ...]:
    return tuple(f"_foreach_{op}{mark}" for op in ops for mark in ("", "_"))


CUDA_VALUES: tuple[CudaValue, ...] = (
    CudaValue(
        (
            *("index_add", "index_add_", "scatter_add", "scatter_add_"),
            *("scatter_reduce", "scatter_reduce_", "put", "put_", "bincount"),
        ),
        "sums of floats by atomic additions, under `TORCH_LOOM_LAUNCH=chaos`",
        "added in another order in each call, which the seed decides; deterministic mode keeps one order",
        "PyTorch's notes on reproducibility; ScatterGatherKernel.cu, Indexing.cu, SummaryOps.cu",
    ),
    CudaValue(
        ("add", "add_", "sub", "sub_", "rsub", *_of_lists("add", "sub")),
        "half precision with a Python number, or with `alpha`",
        "the number stays a float32; the sum, fused with the product, is rounded once",
        f"BinaryAddSubKernel.cu, ForeachFunctors.cuh; {_CARDS}",
    ),
    CudaValue(
        ("_foreach_norm",),
        "floating dtypes, orders 1 and 2",
        "the order in which the threads of CUDA's kernel for lists add, by chunks of 65,536 elements",
        f"ForeachReduceOp.cu; {_CARD}",
    ),
    CudaValue(
        ("_fused_adam_", "_fused_adamw_", "_fused_sgd_"),
        "floating dtypes; SGD with a gradient scale in the last bits not",
        "computed in float32 or float64, products fused into sums, and rounded to the dtype at the end",
        f"fused_adam_utils.cuh, FusedSgdKernel.cu; {_CARD}",
    ),
    CudaValue(
        ("_log_softmax_backward_data",),
        "float32, along a last dimension of 16,384 elements and more",
        "the gradient's sum is added in parts; the CPU adds a row in the lanes of one vector, which puts the "
        "gradient of a cross entropy with label smoothing off by 1e-4",
        "SoftMax.cu: each thread adds its share of a row",
    ),
    CudaValue(
        _of_lists("mul"),
        "half precision with Python numbers",
        "the number stays a float32",
        f"ForeachFunctors.cuh; {_CARDS}",
    ),
    CudaValue(
        ("addcmul", "addcmul_", "addcdiv", "addcdiv_", *_of_lists("addcmul", "addcdiv")),
        "floating dtypes",
        "`value` times the rounded product or quotient is fused into the sum; of `addcmul` with 1 the "
        "product itself; half precision in float32",
        f"PointwiseOpsKernel.cu, ForeachPointwiseOp.cu; {_CARDS}",
    ),
    CudaValue(
        ("arange",),
        "a floating dtype",
        "each number is `start + step * i` with one rounding, in float32 for half precision",
        f"RangeFactories.cu; {_CARDS}",
    ),
    CudaValue(
        ("copy_",),
        "NaN and numbers out of range, from a floating dtype to an integer one",
        "to 32 and 64 bits the end of the range that is nearer; of NaN 0, and from float64 or to 64 bits the "
        "highest bit alone. Narrower integers are the lower bits of those of 32 bits, bytes of int64",
        f"{_PYTORCH}#140347; PTX ISA, cvt: conversions from floating point to integers; {_CARDS}",
    ),
    CudaValue(
        ("cosh", "cosh_", "sinh", "sinh_"),
        "near the largest numbers",
        "finite; the CPU's vectors overflow some numbers early",
        f"CUDA C++ Programming Guide, standard functions; {_CARD_BUT_LAST}",
    ),
    CudaValue(
        ("cumsum", "cumsum_", "cumprod", "cumprod_"),
        "floating dtypes, of tensors with more than one row",
        "along the innermost dimension by Sklansky's network, along others one by one; rounded to the dtype "
        "after each step. A single row is added as on the CPU, one by one in a wider dtype: a card's order "
        "depends on which blocks are first",
        f"ScanUtils.cuh; {_CARDS}",
    ),
    CudaValue(
        ("div", "div_", *_of_lists("div")),
        "a tensor of a real floating dtype, or of integers, divided by a Python number, exactly or "
        "truncated, and lists by one number",
        "the product with the reciprocal, which is rounded first",
        f"{_PYTORCH}#186618; BinaryDivTrueKernel.cu; {_CARDS}",
    ),
    CudaValue(
        ("div", "div_", "floor_divide", "floor_divide_", "fmod", "fmod_", "remainder", "remainder_"),
        "integers by zero",
        "-1: all bits are set; of int64 the lower half alone where the dividend is within uint32; floor "
        "division of a negative number one less",
        f"{_PYTORCH}#116968; {_CARDS}",
    ),
    CudaValue(
        ("div", "div_", "floor_divide", "floor_divide_"),
        "half precision by a tensor, floored",
        "computed in float32, rounded once",
        f"BinaryDivFloorKernel.cu; {_CARD_BUT_LAST}",
    ),
    CudaValue(
        ("elu_backward", "hardswish_backward"),
        "NaN as operand of the function",
        "the gradient of large numbers: NaN is not below a bound",
        f"ActivationEluKernel.cu, ActivationHardswishKernel.cu; {_CARD_BUT_LAST}",
    ),
    CudaValue(
        ("erf", "erf_"),
        "half precision",
        "rounded once; the CPU's vectors have an absolute error of 1e-7, so that small results are off by a "
        "percent or zero",
        f"CUDA C++ Programming Guide, standard functions; {_CARD_BUT_LAST}",
    ),
    CudaValue(
        ("fmax", "fmin", "maximum", "minimum"),
        "integers, with an `out` of another integer dtype",
        "operands are converted to that dtype before they are compared",
        f"{_PYTORCH}#181805; MaxMinElementwiseKernel.cu",
    ),
    CudaValue(
        ("fmod", "fmod_", "remainder", "remainder_"),
        "floating dtypes",
        "the remainder; the CPU's vectors give NaN where the quotient is large",
        f"BinaryRemainderKernel.cu; {_CARD}",
    ),
    CudaValue(
        ("hardsigmoid", "hardsigmoid_", "hardswish", "hardswish_"),
        "floating dtypes",
        "multiplied by a sixth, which is a float32 number, for float64 too",
        f"ActivationHardsigmoidKernel.cu, ActivationHardswishKernel.cu; {_CARD}",
    ),
    CudaValue(
        ("kthvalue",),
        "equal elements",
        "the index of the first one",
        f"Sorting.cu; {_CARDS}",
    ),
    CudaValue(
        ("linalg_vector_norm",),
        "floating dtypes, orders 0, 1 and 2",
        "the order in which the card's threads, blocks and multiprocessors add; squares are fused into sums",
        f"ReduceNormKernel.cu; {_CARD}",
    ),
    CudaValue(
        ("linspace",),
        "an integer dtype",
        "a step in float32, from the start in the lower half and back from the end in the upper",
        f"{_PYTORCH}#170168; RangeFactories.cu; {_CARDS}",
    ),
    CudaValue(
        ("logit", "logit_", "special_entr", "special_xlog1py", "xlogy", "xlogy_"),
        "half precision",
        "computed in float32, rounded once",
        f"UnarySpecialOpsKernel.cu, BinaryMiscOpsKernels.cu; {_CARD_BUT_LAST}",
    ),
    CudaValue(
        ("median", "nanmedian"),
        "equal elements, with a dimension",
        "up to 32 elements the index of the first one in the upper 16, else of the first one; of more, where "
        "a card leaves it to chance, the same within the first 32 that have one",
        f"Sorting.cu; {_CARDS}",
    ),
    CudaValue(
        ("mode",),
        "equally frequent values; places of the mode",
        "the one that a block's comparison by halves leaves, of more than 2048 elements the least; the index "
        "of the last one, of more than 2048 elements of the first",
        f"TensorModeKernel.cu; {_CARDS}",
    ),
    CudaValue(
        ("pow", "pow_"),
        "half precision to the power of 3 or -2",
        "products that are rounded one by one",
        f"PowKernel.cu; {_CARD}",
    ),
    CudaValue(
        ("sigmoid_backward", "tanh_backward"),
        "half precision; of tanh all floating dtypes",
        "rounded at each step; in float32 and float64 the square of tanh is fused into the difference",
        f"BinaryMiscBackwardOpsKernels.cu; {_CARD}",
    ),
    CudaValue(
        ("sort",),
        "unless `stable=True`",
        "2 to 32 equal elements in the order that a bitonic network leaves, more in their own",
        f"{_PYTORCH}#127196; SortUtils.cuh; {_CARDS}",
    ),
    CudaValue(
        ("sqrt", "sqrt_", *_of_lists("sqrt")),
        "float32 and float64",
        "rounded once; the CPU's may be off by one unit in the last place",
        f"CUDA C++ Programming Guide, standard functions; {_CARDS}",
    ),
    CudaValue(
        ("std", "std_mean", "var", "var_mean"),
        "floating dtypes",
        "Welford's recurrence in the order in which the card's threads, blocks and multiprocessors go",
        f"ReduceMomentKernel.cu, SharedReduceOps.h; {_CARD}",
    ),
    CudaValue(
        ("sum", "nansum", "mean", "prod"),
        "floating dtypes, over any dimensions",
        "the order in which the card's threads, blocks and multiprocessors add; half precision in float32",
        f"Reduce.cuh; {_CARDS}",
    ),
    CudaValue(
        ("topk",),
        "equal elements",
        "what is beyond the k-th value in the order of indices, then what equals it; up to 32 then go "
        "through the bitonic network, more through a stable sort",
        f"{_PYTORCH}#127196; TensorTopK.cu, SortUtils.cuh; {_CARDS}",
    ),
)
"""All of them. Random numbers are another matter: ``csrc/torch/random``."""
