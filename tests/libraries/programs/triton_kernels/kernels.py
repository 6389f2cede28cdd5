import os

import torch
import triton
import triton.language as tl
from torch.utils._triton import has_triton, has_triton_package

# Libraries that have both take torch ops where kernels are interpreted.
assert has_triton_package() and has_triton() == (os.environ["TRITON_INTERPRET"] == "0")


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.autotune(configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["columns"])
@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):  # noqa: N803
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
