"""A GPU refuses, in CUDA's words, what the CPU has kernels for and CUDA has not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torchgen
from torchgen.gen import parse_native_yaml
from torchgen.model import DispatchKey

from tests.conftest import PythonRunner
from torch_loom.cuda.refusals import REFUSAL_CASES, REFUSALS, TAKES

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}

CALLS = """
import torch
import torch.nn.functional as F

def i(*shape, dtype=torch.long):
    return torch.ones(shape, dtype=dtype, device="cuda")

def refused(call, kernel, dtype="Long"):
    text = f"'{kernel}' not implemented for '{dtype}'".replace("'", chr(34), 2)
    try:
        call()
    except NotImplementedError as error:
        assert str(error) == text, str(error)
    else:
        raise AssertionError(text)
"""


@pytest.mark.slow
def test_calls_that_cuda_has_no_kernel_for(warm_python: PythonRunner) -> None:
    warm_python(
        CALLS
        + """
refused(lambda: i(2, 2) @ i(2, 2), "addmm_cuda")
refused(lambda: torch.mm(i(2, 2), i(2, 2), out=i(0)), "addmm_cuda")
refused(lambda: i(2, 2).addmm_(i(2, 2), i(2, 2)), "addmm_cuda")
refused(lambda: F.linear(i(3, 2), i(4, 2), i(4)), "addmm_cuda")
refused(lambda: torch.mm(i(2, 2).bool(), i(2, 2).bool()), "addmm_cuda", "Bool")
refused(lambda: torch.einsum("bij,bjk->bik", i(2, 2, 2), i(2, 2, 2)), "baddbmm_cuda")
refused(lambda: i(2, 2) @ i(2), "addmv_impl_cuda")
refused(lambda: torch.dot(i(2), i(2)), "dot")
refused(lambda: F.conv2d(i(1, 1, 3, 3), i(1, 1, 2, 2)), "slow_conv2d_cuda")
refused(lambda: F.conv1d(i(1, 4, 3), i(4, 1, 2), groups=4), "conv_depthwise2d_forward_cuda")
refused(lambda: F.max_pool2d(i(1, 4, 4), 2), "max_pool2d_with_indices_out_cuda_frame")
refused(lambda: torch.angle(i(2).half()), "angle_cuda", "Half")
wide, half = torch.ones((), dtype=torch.float64, device="cuda"), i(2).half()
refused(lambda: torch.igamma(half, wide), "igamma_cuda", "Half")
# Where CUDA has kernels, or returns before it looks at the dtype.
assert (i(0, 2) @ i(2, 3)).shape == (0, 3) and (i(2, 0) @ i(0, 3)).sum() == 0
assert torch.outer(i(2), i(2)).sum() == 4 and torch.angle(i(2)).dtype == torch.float32
assert torch.igamma(half, i(2).bfloat16()).dtype == torch.float32
assert torch.addr(i(2, 2), i(2), i(2)).sum() == 8
assert torch.sparse.mm(torch.eye(2, device="cuda").to_sparse(), torch.ones(2, 2, device="cuda")).sum() == 4
try:
    torch.histogram(torch.ones(3, device="cuda"), 3)
except NotImplementedError as error:
    assert "Could not run 'aten::histogram.bin_ct' with arguments from the 'CUDA' backend" in str(error)
else:
    raise AssertionError
""",
        NAME,
    )


def test_linear_algebra_names_cudas_kernels(warm_python: PythonRunner) -> None:
    """In the order of CUDA's checks: shapes first, then the dtype, and of nothing often none."""
    warm_python(
        CALLS
        + """
L = torch.linalg
for dtype, name in ((torch.float16, "Half"), (torch.complex32, "ComplexHalf")):
    def m(*sizes):
        return torch.eye(*sizes[-2:]).expand(sizes).to(dtype).cuda()
    unit, several, tau = m(3, 3), m(4, 3, 3), m(3, 3)[0]
    pivots = torch.tensor([1, 2, 3], dtype=torch.int32, device="cuda")
    for kernel, calls in {
        "cholesky_cusolver": [
            lambda: L.cholesky(unit), lambda: L.cholesky_ex(several), lambda: torch.cholesky(unit),
        ],
        "cholesky_cuda_potrs": [lambda: torch.cholesky_solve(unit, unit)],
        "cholesky_cuda_potri": [lambda: torch.cholesky_inverse(unit)],
        "lu_factor_cusolver": [
            lambda: L.lu(unit), lambda: L.lu_factor(m(4, 3, 5)), lambda: L.lu_factor(unit, pivot=False),
            lambda: L.det(unit), lambda: L.solve(unit, unit), lambda: L.solve(unit, tau),
        ],
        "lu_factor_cublas": [lambda: L.lu_factor_ex(several), lambda: L.solve(several, several)],
        "lu_solve_cublas": [
            lambda: L.lu_solve(unit, pivots, unit), lambda: torch.lu_solve(unit, unit, pivots),
        ],
        "lu_solve_cusolver": [lambda: L.lu_solve(m(9, 9), pivots.repeat(3), m(9, 2))],
        "geqrf_cuda": [lambda: L.qr(unit), lambda: torch.geqrf(unit), lambda: L.qr(m(0, 3))],
        "geqrf_batched_cuda": [lambda: L.qr(several)],
        "orgqr_cuda": [lambda: L.householder_product(unit, tau)],
        "orgmr_cuda": [lambda: torch.ormqr(unit, tau, unit)],
        "svd_cuda_gesvdjBatched": [lambda: L.svd(unit), lambda: L.svdvals(unit)],
        "svd_cuda_gesvdj": [lambda: L.svd(m(33, 3))],
        "svd_cuda_gesvd": [lambda: L.svd(unit, driver="gesvd")],
        "linalg_eigh_cuda": [lambda: L.eigh(unit), lambda: L.eigvalsh(unit)],
        "linalg_eig_cuda": [lambda: L.eig(unit), lambda: L.eigvals(unit)],
        "triangular_solve_cuda": [
            lambda: L.solve_triangular(unit, unit, upper=True), lambda: torch.triangular_solve(unit, unit),
        ],
        "ldl_factor_looped_cusolver": [lambda: L.ldl_factor(unit)],
        "ldl_solve_looped_cusolver": [lambda: L.ldl_solve(unit, pivots, unit)],
    }.items():
        for call in calls:
            refused(call, kernel, name)
    for nothing in (L.cholesky, L.lu_factor, L.svd, L.eigh):
        nothing(m(0, 3, 3))
refused(lambda: L.eigh(i(3, 3)), "linalg_eigh_cuda")
half = i(3, 4).half()
for call, words in (
    (lambda: L.cholesky(half), "must be batches of square matrices"),
    (lambda: L.eigh(half), "must be batches of square matrices"),
    (lambda: L.qr(i(3, 3)), "Expected a floating point or complex tensor as input. Got Long"),
    (lambda: L.inv(half[:, :3]), "Low precision dtypes not supported. Got Half"),
):
    try:
        call()
    except RuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
""",
        NAME,
    )


def test_sums_of_matrices_by_row(warm_python: PythonRunner) -> None:
    warm_python(
        CALLS
        + """
for dtype, name in ((torch.float16, "Half"), (torch.bfloat16, "BFloat16"), (torch.int64, "Long")):
    dense = torch.tensor([[1, 0, 2], [0, 3, 0]], device="cuda").to(dtype)
    left, right = dense.to_sparse_csr(), (dense + 1).to_sparse_csr()
    for call in (lambda: left + right, lambda: left.add_(right), lambda: torch.add(left, right, out=left)):
        refused(call, "add_out_sparse_csr_cuda_impl", name)
    # Where CUDA adds values alone, or to a dense matrix; and sums along dimensions.
    assert (left + left).to_dense().equal(2 * dense) and (dense + left).equal(2 * dense)
    assert left.sum(0, keepdim=True).to_dense().equal(dense.sum(0, keepdim=True))
    assert left.sum() == 6
left = dense.float().to_sparse_csr()
assert (left + left.clone()).to_dense().equal(2 * dense.float())
""",
        NAME,
    )


PRODUCTS = """
import torch
import torch.nn.functional as F

e4m3, e5m2, half, brain = torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16
one = torch.ones((), device="cuda")

def ones(*shape, dtype=e4m3):
    return torch.ones(shape, device="cuda").to(dtype)

def integers(rows, inner, columns):
    return torch._int_mm(ones(rows, inner, dtype=torch.int8), ones(inner, columns, dtype=torch.int8))

def scaled(left, right, out_dtype=brain, bias=None, **results):
    return torch._scaled_mm(left, right, one, one, bias=bias, out_dtype=out_dtype, **results)

def fails(call, words):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        assert words in str(error), str(error)
    else:
        raise AssertionError(words)
"""


@pytest.mark.slow
def test_products_that_cuda_takes_in_some_shapes_only(warm_python: PythonRunner) -> None:
    warm_python(
        PRODUCTS
        + """
fails(lambda: integers(16, 8, 8), "self.size(0) needs to be greater than 16, but got 16")
fails(lambda: integers(17, 7, 8), "self.size(1) needs to be greater than 0 and a multiple of 8, but got 7")
fails(lambda: integers(17, 8, 9), "mat2.size(1) needs to be greater than 0 and a multiple of 8, but got 9")
assert integers(17, 8, 8).sum() == 17 * 8 * 8

left, right = ones(32, 48), ones(16, 48).t()
assert scaled(left, right).sum() == 32 * 16 * 48
assert scaled(ones(32, 96)[:, ::2], right).shape == (32, 16)
assert scaled(left, right, e4m3).dtype == e4m3 and scaled(left, right.to(e5m2), e5m2).dtype == e5m2
assert scaled(left, right, bias=ones(16, dtype=brain))[0, 0] == 49
fails(lambda: scaled(ones(32, 8), ones(16, 8).t()), "but got mat1 shape: (32x8).")
fails(lambda: scaled(left, ones(8, 48).t()), "mat2 shape (48x8) must be divisible by 16")
fails(lambda: scaled(left.to(e5m2), right.to(e5m2)), "Multiplication of two Float8_e5m2 matrices")
fails(lambda: scaled(left, right.contiguous()), "Only multiplication of row-major and column-major")
fails(lambda: scaled(ones(48, 32).t(), right), "Only multiplication of row-major and column-major")
fails(lambda: scaled(left, right, e5m2), "CUBLAS_STATUS_NOT_SUPPORTED")
fails(lambda: scaled(left, right, e5m2, out=ones(32, 16, dtype=e5m2)), "CUBLAS_STATUS_NOT_SUPPORTED")
bias = ones(16, dtype=half)
fails(lambda: scaled(left, right, torch.float32, bias), "Bias is not supported when out_dtype is set to")
fails(lambda: scaled(left, right, brain, bias.float()), "Bias must be BFloat16 or Half, but got Float")
fails(lambda: scaled(left, right, brain, bias), "Bias must be BFloat16 to compute BFloat16 output")
fails(lambda: scaled(left, right, half, bias.bfloat16()), "Bias must be Float16 to compute Half output")
whole = F.ScalingType.TensorWise
fails(lambda: F.scaled_mm(ones(32, 8), ones(16, 8).t(), one, whole, one, whole), "mat1 shape: (32x8)")
""",
        NAME,
    )


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["a100", "wormhole_b0"])
def test_scaled_products_by_chip(warm_python: PythonRunner, chip: str) -> None:
    warm_python(
        PRODUCTS
        + """
left, right = ones(32, 48), ones(16, 48).t()
if torch.cuda.get_device_capability() == (8, 0):
    fails(lambda: scaled(left, right), "only supported on CUDA devices with compute capability >= 9.0 or 8.9")
else:
    assert scaled(left, right).sum() == 32 * 16 * 48 and integers(4, 4, 4).sum() == 64
""",
        NAME | {"TORCH_LOOM_CHIP": chip},
    )


@pytest.mark.slow
def test_only_gpus_refuse(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        x = torch.ones(2, 2, dtype=torch.long, device="cuda")
        assert (x @ x).sum() == 8
        assert torch.histogram(torch.ones(3, device="cuda"), 3).hist.sum() == 3
        """,
        {**NAME, "TORCH_LOOM_CHIP": "loom1"},
    )


def test_no_other_name_refuses() -> None:
    x = torch.ones(2, 2, dtype=torch.long, device="loom")
    assert (x @ x).sum() == 8


# What the database says that CUDA lacks, and is not refused here.
OPEN = {
    "norm": "complex32, for which the CPU has a rounding of its own",
    "torch._scaled_mm": "dtypes of AMD's",
    "torch._scaled_mm_v2": "dtypes of AMD's",
}


@pytest.mark.slow
def test_the_table_is_what_cuda_takes(warm_python: PythonRunner) -> None:
    """For each op that takes a dtype on the CPU and not on CUDA: that dtype is refused, and no other is."""
    warm_python(
        """
        import warnings
        from itertools import islice
        import torch
        from torch.testing._internal.common_methods_invocations import op_db
        from tests.cuda.test_refusals import OPEN
        warnings.simplefilter("ignore")

        def is_refused(op, dtype, most=None):
            for sample in islice(op.sample_inputs("cuda", dtype), most):
                try:
                    op(sample.input, *sample.args, **sample.kwargs)
                except NotImplementedError as error:
                    assert "_cpu" not in str(error), (op.full_name, error)
                    return True
            return False

        wrong, seen = [], 0
        for op in op_db:
            lacking = op.dtypes - op.dtypesIfCUDA
            if not lacking or op.full_name.partition(".inf")[0] in OPEN:
                continue
            seen += 1
            wrong += [(op.full_name, dtype) for dtype in lacking if not is_refused(op, dtype)]
            both = op.dtypes & op.dtypesIfCUDA
            wrong += [(op.full_name, dtype, "refused") for dtype in both if is_refused(op, dtype, most=10)]
        assert seen > 30, seen
        assert not wrong, wrong
        """,
        NAME,
    )


def test_refused_ops_are_the_cpus_alone() -> None:
    """Ops without a kernel for CUDA are those that PyTorch declares none for."""
    folder = Path(torchgen.__file__).parent / "packaged/ATen/native"
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    absent = {name for name, refusal in REFUSALS.items() if refusal.case == "absent"}
    found = set()
    for function in parsed.native_functions:
        name = str(function.func.name)
        if not {name, name.partition(".")[0]} & absent or "autogen" in function.tags:
            continue
        if parsed.backend_indices[DispatchKey.CPU].has_kernel(function):
            assert not parsed.backend_indices[DispatchKey.CUDA].has_kernel(function), name
            found |= {name, name.partition(".")[0]}
    assert absent <= found


def test_the_table_names_what_it_declares() -> None:
    for name, refusal in REFUSALS.items():
        assert refusal.takes in TAKES, name
        assert refusal.case in REFUSAL_CASES, name
