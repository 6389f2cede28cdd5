"""Products of groups of float8 matrices: results of each layout, and what CUDA refuses in its words."""

from __future__ import annotations

from tests.conftest import PythonRunner

COMMON = """
import torch
import torch.nn.functional as F
from torch.nn.functional import ScalingType

ROW, F8, BF16 = ScalingType.RowWise, torch.float8_e4m3fn, torch.bfloat16
draw = torch.Generator().manual_seed(0)


def matrix(*sizes):
    return torch.randn(*sizes, generator=draw).to(F8)


def scale(*sizes):
    return torch.rand(*sizes, generator=draw) + 0.5


def by_column(tensor):
    return tensor.transpose(-2, -1).contiguous().transpose(-2, -1)


OFFSETS = torch.tensor([16, 16, 48], dtype=torch.int32)
CASES = {  # left, right, scales of rows and of columns, where groups end
    "2d-3d": (matrix(48, 32), by_column(matrix(3, 32, 64)), scale(48), scale(3, 64), OFFSETS),
    "3d-2d": (matrix(3, 16, 32), by_column(matrix(32, 48)), scale(3, 16), scale(48), OFFSETS),
    "2d-2d": (matrix(16, 48), by_column(matrix(48, 32)), scale(3 * 16), scale(3 * 32), OFFSETS),
    "3d-3d": (matrix(3, 16, 32), by_column(matrix(3, 32, 48)), scale(3, 16), scale(3, 48), None),
}
"""
RESULTS = """
def expected(left, right, rows, columns, ends):
    left, right = left.float(), right.float()
    ends = [0, *ends.tolist()] if ends is not None else []
    parts = []
    for group in range(3):
        cut = slice(*ends[group : group + 2]) if ends else None
        if left.dim() == 2 and right.dim() == 2:
            row, column = rows.view(3, -1)[group], columns.view(3, -1)[group]
            product = left[:, cut] @ right[cut]
        elif left.dim() == 2:
            row, column, product = rows[cut], columns[group], left[cut] @ right[group]
        elif right.dim() == 2:
            row, column, product = rows[group], columns[cut], left[group] @ right[:, cut]
        else:
            row, column, product = rows[group], columns[group], left[group] @ right[group]
        parts.append(product * row[:, None] * column)
    if left.dim() == right.dim():
        return torch.stack(parts)
    return torch.cat(parts, 0 if left.dim() == 2 else 1)


for name, case in CASES.items():
    wanted = expected(*case)
    left, right, rows, columns, ends = (None if each is None else each.cuda() for each in case)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            first = torch._scaled_grouped_mm(left, right, rows, columns, offs=ends, out_dtype=BF16)
            second = F.scaled_grouped_mm(left, right, rows, ROW, columns, ROW, offs=ends, use_fast_accum=True)
        stream.synchronize()
        assert first.dtype == second.dtype == BF16
        assert torch.equal(first, second)
        torch.testing.assert_close(first.cpu().float(), wanted, rtol=1e-2, atol=1e-2, msg=lambda m: name + m)
    fake = torch._scaled_grouped_mm(*(None if each is None else each.to("meta") for each in case))
    assert (fake.shape, fake.stride(), fake.dtype) == (first.shape, first.stride(), first.dtype)
"""
FAILS = """
left, right, rows, columns, ends = (each.cuda() for each in CASES["2d-3d"])


def fails(text, error=ValueError, left=left, right=right, rows=rows, columns=columns, offs=ends, **more):
    for call in (
        lambda: torch._scaled_grouped_mm(left, right, rows, columns, offs=offs, **more),
        lambda: torch._scaled_grouped_mm_v2(
            left, right, [rows], [1], [], [columns], [1], [], offs, more.get("bias"), more.get("out_dtype")
        ),
    ):
        try:
            call()
        except error as raised:
            assert text in str(raised), raised
        else:
            raise AssertionError(text)


"""
REFUSED = """
fails("Expected mat1 to not be transposed", left=by_column(left))
fails("Expected mat2 to be transposed", right=right.contiguous())
fails("contraction dimension of mat_a and mat_b must match", left=left[:, :16])
fails("Have to provide offsets if there is a 2d matrix", offs=None)
fails("Offsets have to be int32", offs=ends.long())
fails("Bias not supported yet", bias=torch.ones(64, device="cuda", dtype=BF16))
fails("Only bf16 high precision output types are supported for grouped gemm", out_dtype=torch.float32)
fails("scale must have the same length as mat for arg 0", RuntimeError, rows=rows[:16])
fails("scale must have the same batch dimension as mat for arg 1", RuntimeError, columns=columns[:1])
fails("matrix batch sizes have to match", RuntimeError, offs=ends[:2])
fails("Expected mat_a to be Float8_e4m3 matrix got Float8_e5m2", left=left.to(torch.float8_e5m2))
fails("strides should be multiple of 16 bytes", RuntimeError, left=matrix(48, 40).cuda()[:, :32])
blocks = torch.ones(48, 1, device="cuda").to(torch.float8_e8m0fnu)
try:
    kind = ScalingType.BlockWise1x32
    F.scaled_grouped_mm(left, right, blocks, kind, blocks, kind, offs=ends)
except NotImplementedError as error:
    assert "mxfp8_mxfp8 grouped gemm requires" in str(error)
else:
    raise AssertionError("scales of blocks")
try:
    F.scaled_grouped_mm(left, right, rows, ScalingType.TensorWise, columns, ROW, offs=ends)
except ValueError as error:
    assert "No gemm implementation was found" in str(error)
else:
    raise AssertionError("another recipe")
"""


def test_products_of_each_layout(fork_python: PythonRunner) -> None:
    fork_python(COMMON + RESULTS, {"TORCH_LOOM_DEVICE_NAME": "cuda"}, is_autoloading=True)


def test_what_cuda_refuses(fork_python: PythonRunner) -> None:
    fork_python(COMMON + FAILS + REFUSED, {"TORCH_LOOM_DEVICE_NAME": "cuda"}, is_autoloading=True)


def test_other_architectures_refuse_all(fork_python: PythonRunner) -> None:
    env = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_CHIP": "a100"}
    text = "torch._scaled_grouped_mm is only supported on CUDA devices with compute capability = [9.0, 10.0]"
    fork_python(f"{COMMON}{FAILS}fails({text!r})", env, is_autoloading=True)
