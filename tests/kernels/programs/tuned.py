# The cost model chooses among configurations: the tiles that a product of this size goes fastest by.
import os

import torch
import triton
import triton.language as tl


def choices(*sizes):
    return [triton.Config({"M": m, "N": n, "K": 32}, num_warps=4) for m, n in sizes]


@triton.autotune(choices((16, 16), (128, 128), (32, 32)), key=["size"])
@triton.jit
def product(a, b, out, size, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # noqa: N803
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    for begin in range(0, size, K):
        depth = begin + tl.arange(0, K)
        left = tl.load(a + rows[:, None] * size + depth[None, :])
        total = tl.dot(left, tl.load(b + depth[:, None] * size + columns[None, :]), total)
    tl.store(out + rows[:, None] * size + columns[None, :], total)


def run(size):
    a, b = (torch.rand(size, size, device="cuda").half() for _ in range(2))
    out = torch.empty(size, size, device="cuda")
    product[lambda meta: (triton.cdiv(size, meta["M"]), triton.cdiv(size, meta["N"]))](a, b, out, size)
    torch.testing.assert_close(out, a.float() @ b.float(), atol=0.5, rtol=1e-2)
    return product.best_config.kwargs["M"]


# Configurations that a GPU could not launch, or that the kernel refuses, are not chosen.
seen, failed = [], []


def note(nargs):
    seen.append(nargs["N"])


@triton.autotune(
    [
        triton.Config({"N": 64}, num_warps=64, pre_hook=note),
        triton.Config({"N": 32}, pre_hook=note),
        triton.Config({"N": 128}, pre_hook=note),
    ],
    key=["size"],
    post_hook=lambda nargs, exception: failed.append(type(exception).__name__),
)
@triton.jit
def picky(out, size, N: tl.constexpr):  # noqa: N803
    tl.static_assert(N != 32, "not this one")
    tl.store(out + tl.arange(0, N), 1.0, mask=tl.arange(0, N) < size)


out = torch.zeros(100, device="cuda")
picky[(1,)](out, 100)
assert out.sum().item() == 100
assert picky.best_config.kwargs == {"N": 128}
if os.environ["TORCH_LOOM_AUTOTUNE"] == "first":
    assert failed == ["OutOfResources", "CompileTimeAssertionFailure"], failed
    assert seen == [32, 128, 128], seen

print(run(256), run(2048))
