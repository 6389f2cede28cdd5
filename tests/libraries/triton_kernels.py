"""Triton kernels on the devices' memory: interpreted, in a process of their own; else refused by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

PROGRAM = """
import torch, triton, triton.language as tl
from torch.utils._triton import has_triton, has_triton_package
assert has_triton_package() and not has_triton()  # libraries that have both take torch ops

@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

@triton.autotune(configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["columns"])
@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    row = tl.exp(row - tl.max(row, 0))
    tl.store(out + tl.program_id(0) * columns + at, row / tl.sum(row, 0), mask=at < columns)

torch.manual_seed(0)
x, y = torch.randn(2, 1000, device="cuda")
out = torch.empty_like(x)
add_kernel[(triton.cdiv(1000, 256),)](x, y, out, 1000, BLOCK=256)
torch.testing.assert_close(out, x + y)
x = torch.randn(7, 100, device="cuda")
out = torch.empty_like(x)
softmax_kernel[(7,)](x, out, 100)
torch.testing.assert_close(out, x.softmax(1))
assert len(softmax_kernel.configs) == 2 and softmax_kernel.best_config.kwargs == {"BLOCK": 128}
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    x, out = torch.ones(1000, device="cuda"), torch.empty(1000, device="cuda")
    add_kernel[(4,)](x, x, out, 1000, BLOCK=256)
side.synchronize()
assert out.is_cuda and out.unique().tolist() == [2]
"""


def run(tmp_path: Path, program: str, interpret: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "kernels.py"  # Triton reads the source
    script.write_text(program, encoding="utf-8")
    environment = {**os.environ, "TRITON_INTERPRET": interpret}
    return subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=250
    )


def test_interpreted_kernels_run(tmp_path: Path) -> None:
    done = run(tmp_path, PROGRAM, "1")
    assert done.returncode == 0, done.stderr


def test_other_launches_are_refused_by_name(tmp_path: Path) -> None:
    done = run(tmp_path, PROGRAM, "0")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "NotApplicableError: add_kernel (" in last
    assert "TRITON_INTERPRET=1" in last


SCALARS = """
import torch, triton, triton.language as tl

@triton.jit
def add_scalar(x, out, scalar, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + scalar.to(tl.float32), mask=at < n)

for scalar in (0.5, 3, 1.0):
    x, out = torch.ones(8, device="cuda"), torch.empty(8, device="cuda")
    add_scalar[(1,)](x, out, scalar, 8, BLOCK=8)
    assert out.tolist() == [1 + scalar] * 8
"""


@pytest.mark.report("triton-lang/triton", "scalar arguments of a kernel are values with `.to`")
@pytest.mark.xfail(strict=True, reason="scalars of interpreted Triton kernels")
def test_scalar_arguments(tmp_path: Path) -> None:
    done = run(tmp_path, SCALARS, "1")
    assert done.returncode == 0, done.stderr


LIGER = """
import torch
from liger_kernel.transformers import LigerCrossEntropyLoss, LigerRMSNorm
norm, x = LigerRMSNorm(64).to("cuda"), torch.randn(2, 8, 64, device="cuda", requires_grad=True)
torch.testing.assert_close(norm(x), torch.nn.functional.rms_norm(x, (64,), norm.weight, 1e-6))
scores = torch.randn(8, 100, device="cuda", requires_grad=True)
labels = torch.randint(100, (8,), device="cuda")
expected = torch.nn.functional.cross_entropy(scores.detach(), labels)
torch.testing.assert_close(LigerCrossEntropyLoss()(scores, labels), expected)
"""


@pytest.mark.report("linkedin/Liger-Kernel", "norm and loss of Liger's kernels")
@pytest.mark.xfail(strict=True, reason="Triton kernels of libraries")
def test_liger(tmp_path: Path) -> None:
    pytest.importorskip("liger_kernel")
    done = run(tmp_path, LIGER, "1")
    assert done.returncode == 0, done.stderr


LINEAR_ATTENTION = """
import torch
from fla.ops.linear_attn import fused_recurrent_linear_attn
q, k, v = (torch.randn(1, 8, 2, 16, device="cuda") for _ in range(3))
found, _ = fused_recurrent_linear_attn(q, k, v, normalize=False)
scores = torch.einsum("bihd,bjhd->bhij", q * 16**-0.5, k).tril()
torch.testing.assert_close(found, torch.einsum("bhij,bjhd->bihd", scores, v), rtol=1e-3, atol=1e-3)
"""


@pytest.mark.report("fla-org/flash-linear-attention", "recurrent linear attention")
@pytest.mark.xfail(strict=True, reason="Triton kernels of libraries")
def test_linear_attention(tmp_path: Path) -> None:
    pytest.importorskip("fla")
    done = run(tmp_path, LINEAR_ATTENTION, "1")
    assert done.returncode == 0, done.stderr
