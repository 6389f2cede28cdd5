import torch
import triton
import triton.language as tl


@triton.jit
def add_scalar(x, out, scalar, n, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + scalar.to(tl.float32), mask=at < n)


for scalar in (0.5, 3, 1.0):
    x, out = torch.ones(8, device="cuda"), torch.empty(8, device="cuda")
    add_scalar[(1,)](x, out, scalar, 8, BLOCK=8)
    assert out.tolist() == [1 + scalar] * 8
