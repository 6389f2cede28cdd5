"""Memory by host descriptors and block pointers, offsets of 64 bits, histograms and scaled products."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def moved(source, target, rows: tl.constexpr, columns: tl.constexpr):
    row, column = tl.program_id(0) * rows, tl.program_id(1) * columns
    target.store([row, column], source.load([row, column]) * 2)


def check_descriptors() -> None:
    x = torch.randn(12, 40, device="cuda")
    out = torch.full_like(x, 7)
    given = TensorDescriptor.from_tensor(x, [8, 16])
    taken = TensorDescriptor(out, [10, 36], out.stride(), [8, 16])
    moved[(2, 3)](given, taken, 8, 16)
    expected = torch.full_like(x, 7)
    expected[:10, :36] = x[:10, :36] * 2  # what is outside of a descriptor's shape is not written
    assert torch.equal(out, expected)


@triton.jit
def transposed(x, out, rows, columns, n: tl.constexpr):
    at = tl.make_block_ptr(x, (rows, columns), (columns, 1), (0, 0), (n, n), (1, 0))
    to = tl.make_block_ptr(out, (columns, rows), (rows, 1), (0, 0), (n, n), (1, 0))
    for _ in range(0, columns, n):
        block = tl.load(at, boundary_check=(0, 1), padding_option="zero")
        tl.store(to, tl.trans(block), boundary_check=(0, 1))
        at = tl.advance(at, (0, n))
        to = tl.advance(to, (n, 0))


def check_block_pointers() -> None:
    x = torch.randn(13, 50, device="cuda")
    out = torch.zeros(50, 13, device="cuda")
    transposed[(1,)](x, out, 13, 50, 16)
    assert torch.equal(out, x.T)


@triton.jit(do_not_specialize=["row"])
def far(x, out, row, stride, n: tl.constexpr):
    at = tl.arange(0, n)
    tl.store(out + at, tl.load(x + row.to(tl.int64) * stride + at))


def check_wide_offsets() -> None:
    # Committed where it is touched: three rows with more than 2^31 elements between them.
    stride = 1 << 30
    x = torch.empty(2 * stride + 64, dtype=torch.int8, device="cuda")
    x[2 * stride :] = torch.arange(64, device="cuda")
    out = torch.zeros(64, dtype=torch.int8, device="cuda")
    far[(1,)](x, out, 2, stride, 64)
    assert torch.equal(out, x[2 * stride :])
    far[(1,)](x, out, 1, 2 * stride, 64)  # a stride that fits no 32 bits
    assert torch.equal(out, x[2 * stride :])


@triton.jit
def counted(x, mask, out, n: tl.constexpr, bins: tl.constexpr):
    at = tl.arange(0, n)
    found = tl.histogram(tl.load(x + at), bins, mask=tl.load(mask + at))
    tl.store(out + tl.arange(0, bins), found)


def check_histogram() -> None:
    x = torch.randint(32, (256,), dtype=torch.int32, device="cuda")
    mask = torch.rand(256, device="cuda") < 0.7
    out = torch.zeros(32, dtype=torch.int32, device="cuda")
    counted[(1,)](x, mask, out, 256, 32)
    assert torch.equal(out, torch.bincount(x[mask], minlength=32).int())


@triton.jit
def scaled(a, a_scale, b, b_scale, out, n: tl.constexpr, k: tl.constexpr):
    row, column = tl.arange(0, n)[:, None], tl.arange(0, n)[None, :]
    inner, group = tl.arange(0, k), tl.arange(0, k // 32)[None, :]
    left = tl.load(a + row * k + inner[None, :])
    right = tl.load(b + inner[:, None] * n + column)
    left_scale = tl.load(a_scale + row * (k // 32) + group)
    right_scale = tl.load(b_scale + tl.arange(0, n)[:, None] * (k // 32) + group)
    product = tl.dot_scaled(left, left_scale, "e4m3", right, right_scale, "e5m2")
    tl.store(out + row * n + column, product)


def check_scaled_products() -> None:
    n, k = 32, 64
    a = torch.randn(n, k).to(torch.float8_e4m3fn)
    b = torch.randn(k, n).to(torch.float8_e5m2)
    scales = [torch.randint(120, 135, (n, k // 32), dtype=torch.uint8) for _ in range(2)]
    out = torch.zeros(n, n, device="cuda")
    scaled[(1,)](a.cuda(), scales[0].cuda(), b.cuda(), scales[1].cuda(), out, n, k)
    # A scale is a power of two, with the exponent's bits of a float, for 32 numbers in a row.
    left, right = (torch.exp2(one.double() - 127).repeat_interleave(32, 1) for one in scales)
    expected = (a.double() * left) @ (b.double() * right.T)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=1e-4, atol=1e-4)


torch.manual_seed(0)
check_descriptors()
check_block_pointers()
check_wide_offsets()
check_histogram()
check_scaled_products()
