"""Calls that the engine, the CPU, computes in the next wider dtype and rounds, under every device's name.

Of most, such as half-precision transforms, the engine has no kernel in a dtype that CUDA has one for;
libraries take each device that is not the CPU for one like CUDA. Where no wider dtype stands for it the call
is made of other ops (``csrc/torch/engine/lacking_kernels.cpp``).

Of products and convolutions of half precision the engine has kernels. They are many times slower than
float32's on a processor without instructions for these dtypes, and what they round depends on the processor.
A GPU sums in float32 and rounds once. Dense products of matrices are loops of ours, in one order of sums
(``csrc/torch/engine/half_products.cpp``); convolutions and sparse products are float32's kernels.

What each op takes on CUDA is what PyTorch's own tests expect: ``dtypesIfCUDA`` of its operator database, with
which ``tests/cuda/test_widening.py`` compares the table.
"""

from __future__ import annotations

WIDENED_SETS: dict[str, tuple[str, ...]] = {
    "half": ("Half",),
    "halves": ("Half", "BFloat16"),
    "half_or_complex_half": ("Half", "ComplexHalf"),
    "complex_half": ("ComplexHalf",),
    "bool": ("Bool",),
    "bool_or_complex_half": ("Bool", "ComplexHalf"),
    "any_complex": ("ComplexHalf", "ComplexFloat", "ComplexDouble"),
    "integers": ("Byte", "Char", "Short", "Int", "Long"),
}
"""Sets of dtypes that the engine's kernel is not asked for, by PyTorch's C++ names."""

# Products of matrices and vectors. `addbmm` is none of them: CUDA, too, rounds its sum after each matrix.
_PRODUCTS = "mm addmm addmm_ addmv addmv_ mv"

_LISTS: dict[str, str] = {
    "half": "rrelu_with_noise rrelu_with_noise_ rrelu_with_noise_backward",
    "halves": (
        "avg_pool3d avg_pool3d_backward multi_margin_loss multi_margin_loss_backward "
        "multilabel_margin_loss_forward multilabel_margin_loss_backward "
        "_upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward "
        f"{_PRODUCTS} bmm baddbmm baddbmm_ dot _addmm_activation convolution convolution_backward"
    ),
    "half_or_complex_half": "_fft_r2c _fft_c2r _fft_c2c",
    "complex_half": (
        "acos acosh angle asin asinh atan atanh cos cosh exp log rsqrt sigmoid sin sinh sqrt tan tanh "
        "acos_ acosh_ asin_ asinh_ atan_ atanh_ cos_ cosh_ exp_ log_ rsqrt_ sigmoid_ sin_ sinh_ sqrt_ tan_ "
        "tanh_ div div_ lerp lerp_ logaddexp pow pow_ prod sum sigmoid_backward tanh_backward"
    ),
    "bool": "abs abs_",
    "bool_or_complex_half": "trace",
    "any_complex": "nansum",
    "integers": "histc",
}

# By what the kernels of CUDA and cuSPARSE take (aten/src/ATen/native/sparse/cuda): cuSPARSE sums products of
# half precision in float32, as the wider call does.
_SPARSE_LISTS: dict[str, str] = {
    "half": "add.Tensor add_.Tensor add.out sub.Tensor sub_.Tensor sub.out",
    "halves": f"{_PRODUCTS} _sparse_sparse_matmul",
}

WIDENED: dict[str, str] = {op: which for which, names in _LISTS.items() for op in names.split()}
"""The set of an op, by its name without ``aten::``; a name without an overload stands for all of them."""

WIDENED_SPARSE: dict[str, str] = {op: which for which, names in _SPARSE_LISTS.items() for op in names.split()}
"""The same where an operand is sparse."""
