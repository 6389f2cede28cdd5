"""Calls that CUDA has no kernel for and the CPU has: matrix products of integers, ops of the CPU alone.

A program that passes here must pass on the card. So a chip that is a GPU refuses these calls under the name
cuda, in CUDA's words. What each op takes on CUDA is what PyTorch's own tests expect: ``dtypesIfCUDA`` of its
operator database, with which ``tests/cuda/test_refusals.py`` compares the table.
"""

from __future__ import annotations

from dataclasses import dataclass

_INTEGERS = ("Byte", "Char", "Short", "Int", "Long")
_HALVES = ("Half", "BFloat16")
_REALS = ("Float", "Double")
_COMPLEX = ("ComplexFloat", "ComplexDouble")

TAKES: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "wide": _REALS,
    "floating": (*_HALVES, *_REALS),
    "products": (*_HALVES, *_REALS, *_COMPLEX),
    "complex": (*_HALVES, *_REALS, "ComplexHalf", *_COMPLEX),
    "numbers": (*_INTEGERS, *_REALS),
    "all_numbers": (*_INTEGERS, *_HALVES, *_REALS),
    "transforms": (*_REALS, *_COMPLEX),
    # Of integers the op itself says that it wants floating-point numbers, before its kernel does.
    "solved": (*_INTEGERS, "Bool", *_REALS, *_COMPLEX),
    # Nor is there a complex dtype for the results of bfloat16.
    "decomposed": (*_INTEGERS, "Bool", "BFloat16", *_REALS, *_COMPLEX),
    "not_half": (*_INTEGERS, "Bool", *_REALS, "ComplexHalf", *_COMPLEX),
}
"""Sets of dtypes that kernels take, by PyTorch's C++ names; an op with its own kernels says which."""

REFUSAL_CASES: dict[str, str] = {
    "always": "every call",
    "filled": "no operand is empty: CUDA returns before it looks at the dtype",
    "product": "the same; or two matrices of different dtypes",
    "batches": "the same; or two batches of matrices of different dtypes",
    "promoted": "the dtype that its operands are promoted to",
    "reduction": "its reduction is 'prod', 'amin' or 'amax'",
    "convolution": "a convolution; which kernel it would be depends on its arguments; or different dtypes",
    "transform": "a Fourier transform along a dimension whose size is not a power of two",
    "absent": "every call: PyTorch has no kernel of the op for CUDA",
    "integer_product": "a shape that CUDA's product of int8 matrices does not take",
    "least_squares": "a driver of LAPACK's that CUDA's libraries lack",
    "rows": "both operands are matrices by row (CSR), and not the same one",
    "solver": "a decomposition or a solution; which library's kernel it would be depends on the sizes",
    "scaled_product": "a shape, layout or dtype that CUDA's product of float8 matrices does not take",
}
"""Which calls are refused; `tools/op_table.py` makes C++'s enumeration of it."""


@dataclass(frozen=True)
class Refusal:
    """What CUDA refuses of an op.

    Attributes:
        kernel: what the message calls the op: CUDA's name, or of solvers the family by which
            ``csrc/torch/cuda/solver_kernels.cpp`` finds it.
        takes: one of :data:`TAKES`; the call is refused if its operand has another dtype.
        case: one of :data:`REFUSAL_CASES`.
    """

    kernel: str
    takes: str
    case: str = "always"


def _products() -> dict[str, Refusal]:
    # Those of the case "filled" compare dtypes in the same words on the CPU.
    kernels = {
        ("addmm_cuda", "product"): "mm",
        ("addmm_cuda", "filled"): "addmm addmm_ addbmm addbmm_ _addmm_activation",
        ("baddbmm_cuda", "batches"): "bmm baddbmm baddbmm_",
        ("addmv_impl_cuda", "filled"): "mv addmv addmv_",
    }
    return {
        op: Refusal(kernel, "products", case)
        for (kernel, case), names in kernels.items()
        for op in names.split()
    } | {op: Refusal("dot", "products") for op in ("dot", "vdot")}


def _windows() -> dict[str, Refusal]:
    kernels = {
        "avg_pool2d": "avg_pool2d_out_cuda_frame",
        "avg_pool3d": "avg_pool3d_out_cuda",
        "max_pool2d_with_indices": "max_pool2d_with_indices_out_cuda_frame",
        "max_pool3d_with_indices": "max_pool3d_with_indices_out_frame",
        "upsample_bilinear2d": "upsample_bilinear2d_out_frame",
        "upsample_bicubic2d": "upsample_bicubic2d_out_frame",
        "_upsample_bilinear2d_aa": "upsample_bilinear2d_out_frame",
        "_upsample_bicubic2d_aa": "upsample_bilinear2d_out_frame",
    }
    return {op: Refusal(kernel, "floating", "filled") for op, kernel in kernels.items()}


def _solvers() -> dict[str, Refusal]:
    families = {
        ("cholesky", "solved"): "linalg_cholesky_ex",
        ("cholesky", "transforms"): "cholesky",
        ("cholesky_inverse", "transforms"): "cholesky_inverse",
        ("cholesky_solve", "transforms"): "cholesky_solve _cholesky_solve_helper",
        ("eig", "decomposed"): "linalg_eig linalg_eigvals _linalg_eigvals",
        ("eigh", "transforms"): "_linalg_eigh",
        ("geqrf", "solved"): "linalg_qr",
        ("geqrf", "transforms"): "geqrf",
        ("ldl_factor", "solved"): "linalg_ldl_factor_ex",
        ("ldl_solve", "solved"): "linalg_ldl_solve",
        ("lu_factor", "transforms"): "linalg_lu linalg_lu_factor_ex",
        ("lu_factor_square", "solved"): "_linalg_det _linalg_solve_ex",
        ("lu_solve", "solved"): "linalg_lu_solve",
        ("orgqr", "transforms"): "linalg_householder_product",
        ("ormqr", "transforms"): "ormqr",
        ("svd", "solved"): "_linalg_svd",
        ("triangular", "transforms"): "linalg_solve_triangular triangular_solve",
    }
    return {
        op: Refusal(family, takes, "solver")
        for (family, takes), names in families.items()
        for op in names.split()
    }


def _absent() -> dict[str, Refusal]:
    names = (
        "histogram _histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors _spdiags "
        "_upsample_lanczos2d_aa _upsample_lanczos2d_aa_backward quantize_per_tensor.tensors"
    )
    return {op: Refusal("", "nothing", "absent") for op in names.split()}


CPU_LIBRARIES = ("_quantized", "mkl", "mkldnn", "mkldnn_prepacked", "onednn", "quantized")
"""Namespaces of ops whose kernels for dense tensors call libraries of the CPU: FBGEMM, oneDNN, MKL."""

ON_CUDA_TOO = frozenset(f"quantized::embedding_bag_{width}_rowwise_offsets" for width in ("byte", "4bit"))
"""Ops of these namespaces that have a kernel for CUDA."""

REFUSALS: dict[str, Refusal] = {
    **_products(),
    **_windows(),
    **_solvers(),
    **_absent(),
    "convolution": Refusal("", "complex", "convolution"),
    "_convolution": Refusal("", "complex", "convolution"),
    "add.Tensor": Refusal("add_out_sparse_csr_cuda_impl", "transforms", "rows"),
    "add.out": Refusal("add_out_sparse_csr_cuda_impl", "transforms", "rows"),
    "add_.Tensor": Refusal("add_out_sparse_csr_cuda_impl", "transforms", "rows"),
    "angle": Refusal("angle_cuda", "not_half"),
    "_fft_c2c": Refusal("", "transforms", "transform"),
    "_fft_c2r": Refusal("", "transforms", "transform"),
    "_fft_r2c": Refusal("", "transforms", "transform"),
    "_int_mm": Refusal("", "nothing", "integer_product"),
    "_scaled_mm": Refusal("", "nothing", "scaled_product"),
    "_scaled_mm_v2": Refusal("", "nothing", "scaled_product"),
    "linalg_lstsq": Refusal("", "nothing", "least_squares"),
    "histc": Refusal("histc", "numbers"),
    "igamma": Refusal("igamma_cuda", "wide", "promoted"),
    "igamma_": Refusal("igamma_cuda", "wide", "promoted"),
    "igammac": Refusal("igammac_cuda", "wide", "promoted"),
    "igammac_": Refusal("igammac_cuda", "wide", "promoted"),
    "native_dropout_backward": Refusal("masked_scale", "floating"),
    "scatter_reduce": Refusal("cuda_scatter_gather_base_kernel_func", "all_numbers", "reduction"),
    "scatter_reduce_": Refusal("cuda_scatter_gather_base_kernel_func", "all_numbers", "reduction"),
}
"""By the name of an op without ``aten::``; a name without an overload stands for all of them."""
