"""Triton kernels that the programs of this folder share."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def scale(x, out, size, factor, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    tl.store(out + at, tl.load(x + at, mask=mask) * factor, mask=mask)


@triton.jit
def unmasked(x, out, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


@triton.jit
def shifted(x, out, size, by, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at + by, mask=at < size), mask=at < size)


@triton.jit
def rows(x, out, stride, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(out + row * BLOCK + at, tl.load(x + row * stride + at))


@triton.jit
def gathered(x, index, out, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + tl.load(index + at)))


@triton.jit
def one(x, out):
    tl.store(out, tl.load(x) + 1)


@triton.jit
def at_address(address, out):
    tl.store(out, tl.load(address.to(tl.int64).to(tl.pointer_type(tl.float32))))


@triton.jit
def asserted(x, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.arange(0, BLOCK)
    tl.device_assert(tl.load(x + at) > 0, "all are positive")


@triton.jit
def counted(out):
    tl.atomic_add(out, 1)


@triton.jit
def reversed_in_place(x, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at)
    tl.store(x + BLOCK - 1 - at, values)
