"""Prints a digest of each product of blocks by ``tl.dot``: formats, instructions, chains, TF32 in parts."""
# ruff: noqa: N803 (constants of kernels are written so)

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import numpy as np
import torch
import triton
import triton.language as tl

KINDS = {
    "f16": (torch.float16, "ieee"),
    "bf16": (torch.bfloat16, "ieee"),
    "tf32": (torch.float32, "tf32"),
    "ieee": (torch.float32, "ieee"),
    "tf32x3": (torch.float32, "tf32x3"),
    "e4m3": (torch.float8_e4m3fn, "ieee"),
    "e5m2": (torch.float8_e5m2, "ieee"),
}


@triton.jit
def product(a, b, o, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    m = tl.arange(0, M)
    n = tl.arange(0, N)
    k = tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(o + m[:, None] * N + n[None, :], tl.dot(x, y, input_precision=PRECISION))


@triton.jit
def chain(
    a,
    b,
    o,
    K,
    M: tl.constexpr,
    N: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
    IS_GIVEN: tl.constexpr,
):
    m = tl.arange(0, M)
    n = tl.arange(0, N)
    k = tl.arange(0, STEP)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, STEP):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * N + n[None, :])
        if IS_GIVEN:
            total = tl.dot(x, y, total, input_precision=PRECISION)
        else:
            total += tl.dot(x, y, input_precision=PRECISION)
    tl.store(o + m[:, None] * N + n[None, :], total)


def operands(seed: int, m: int, n: int, k: int, kind: str, is_wide: bool) -> list[torch.Tensor]:
    draw = np.random.default_rng(seed)
    a, b = draw.standard_normal((m, k)), draw.standard_normal((k, n))
    if is_wide:
        a = a * 2.0 ** draw.integers(-6, 7, (m, k))
        b = b * 2.0 ** draw.integers(-6, 7, (k, n))
    dtype = KINDS[kind][0]
    # PyTorch converts float64 to FP8 by way of float32.
    between = torch.float32 if dtype.itemsize == 1 else torch.float64
    return [torch.from_numpy(each).to(between).to(dtype).to("cuda") for each in (a, b)]


def results() -> Iterator[tuple[str, torch.Tensor]]:
    for kind, (_, precision) in KINDS.items():
        for (m, n, k), warps, is_wide in (
            ((16, 16, 32), 4, True),
            ((16, 16, 32), 1, False),
            ((32, 32, 64), 8, True),
            ((64, 64, 128), 4, True),
        ):
            a, b = operands(m * 1000003 + n * 1009 + k * 7 + is_wide, m, n, k, kind, is_wide)
            out = torch.empty(m, n, device="cuda")
            product[(1,)](a, b, out, m, n, k, precision, num_warps=warps)
            yield f"dot/{kind}/{m}x{n}x{k}/{warps}/{int(is_wide)}", out
        for m, n, step, k in ((64, 64, 32, 512), (16, 16, 32, 512)):
            a, b = operands(m * 1000003 + n * 1009 + k * 7 + step, m, n, k, kind, is_wide=False)
            for is_given in (False, True):
                out = torch.empty(m, n, device="cuda")
                chain[(1,)](a, b, out, k, m, n, step, precision, is_given, num_warps=4)
                yield f"chain/{kind}/{m}x{n}x{step}x{k}/{int(is_given)}", out


def digest(result: torch.Tensor) -> str:
    """Return that of the first 16 rows and columns."""
    raw = result[:16, :16].contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(raw.tobytes()).hexdigest()[:16]


class Product(torch.autograd.Function):
    @staticmethod
    def forward(context, a, b):
        context.save_for_backward(a, b)
        out = torch.empty(16, 16, device="cuda")
        product[(1,)](a, b, out, 16, 16, 16, "tf32", num_warps=4)
        return out

    @staticmethod
    def backward(context, gradient):
        a, b = context.saved_tensors
        return Product.apply(gradient, b.t().contiguous()), Product.apply(a.t().contiguous(), gradient)


def check_what_no_card_recorded() -> None:
    # Threads of a backward multiply by the rule, too.
    a, b = operands(1, 16, 16, 16, "tf32", is_wide=False)
    left, right = a.clone().requires_grad_(), b.clone().requires_grad_()
    Product.apply(left, right).backward(a)
    assert left.grad is not None
    assert left.grad.equal(Product.apply(a, b.t().contiguous()))
    assert not left.grad.equal(torch.mm(a.double(), b.double().t()).float())
    # Of infinity nothing is left for the other two products of TF32.
    a[0, 0] = float("inf")
    out = torch.empty(16, 16, device="cuda")
    product[(1,)](a, b.abs() + 1, out, 16, 16, 16, "tf32x3", num_warps=4)
    assert out[0].isinf().all()


if __name__ == "__main__":
    check_what_no_card_recorded()
    print(json.dumps({name: digest(result) for name, result in results()}))
