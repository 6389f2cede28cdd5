"""Blocks that are reshaped to 2 x 2 x ... x 2, and views that tell some of their axes apart."""

import torch
import triton
import triton.language as tl


@triton.jit
def sorted_rows(x, out, rows: tl.constexpr, n: tl.constexpr, is_descending: tl.constexpr):
    at = tl.arange(0, rows)[:, None] * n + tl.arange(0, n)[None]
    tl.store(out + at, tl.sort(tl.load(x + at), descending=is_descending))


@triton.jit
def largest(x, out, n: tl.constexpr, k: tl.constexpr):
    tl.store(out + tl.arange(0, k), tl.topk(tl.load(x + tl.arange(0, n)), k))


@triton.jit
def flipped(x, out, n: tl.constexpr):
    tl.store(out + tl.arange(0, n), tl.flip(tl.load(x + tl.arange(0, n)), 0))


@triton.jit
def views(x, index, out):
    at = tl.reshape(tl.arange(0, 256), (4, 2, 2, 16))
    block = tl.load(x + at)
    moved = tl.trans(block, 2, 0, 1, 3)  # the axes 0 and 1 stay neighbours
    pairs = tl.max(block, 1) + tl.sum(block * 2, 2)
    even, odd = tl.split(tl.reshape(block, (4, 2, 16, 2)))
    joined = tl.reshape(tl.join(odd, even), (4, 2, 2, 16))
    picked = tl.gather(block, tl.load(index + at), 3)
    along = tl.reshape(tl.arange(0, 2), (1, 2, 1, 1)).to(tl.float32)
    tl.store(out + at, block * along + joined)
    tl.store(out + 256 + at, tl.reshape(moved, (4, 2, 2, 16)))
    tl.store(out + 512 + at, picked)
    tl.store(out + 768 + tl.reshape(tl.arange(0, 128), (4, 2, 16)), pairs)


def check_views() -> None:
    x = torch.randn(4, 2, 2, 16, device="cuda")
    index = torch.randint(16, x.shape, device="cuda", dtype=torch.int32)
    out = torch.zeros(896, device="cuda")
    views[(1,)](x, index, out)
    pairs = x.view(4, 2, 16, 2)
    joined = torch.stack([pairs[..., 1], pairs[..., 0]], -1).view(x.shape)
    along = torch.tensor([0.0, 1.0], device="cuda").view(1, 2, 1, 1)
    expected = [x * along + joined, x.permute(2, 0, 1, 3), x.gather(3, index.long())]
    expected.append(x.amax(1) + (x * 2).sum(2))
    torch.testing.assert_close(out, torch.cat([one.flatten() for one in expected]))


def check_order(x: torch.Tensor) -> None:
    rows, length = x.shape
    out = torch.zeros_like(x)
    sorted_rows[(1,)](x, out, rows, length, True)
    torch.testing.assert_close(out, x.sort(descending=True)[0], atol=0, rtol=0)


def check_row(x: torch.Tensor) -> None:
    out = torch.zeros_like(x)
    flipped[(1,)](x, out, x.numel())
    torch.testing.assert_close(out, x.flip(0), atol=0, rtol=0)
    largest[(1,)](x, out[:8], x.numel(), 8)
    torch.testing.assert_close(out[:8], x.topk(8)[0], atol=0, rtol=0)


torch.manual_seed(0)
check_views()
for shape in [(1, 2), (4, 16)]:
    check_order(torch.randn(shape, device="cuda"))
check_order(torch.randint(-1000, 1000, (4, 16), device="cuda", dtype=torch.int32))
check_order(torch.randn(2, 16, device="cuda").half())
check_row(torch.randn(64, device="cuda"))
