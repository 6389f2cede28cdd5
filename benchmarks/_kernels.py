"""Triton kernels that benchmarks.kernels times. Imported only where triton is installed."""

# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def softmax(out, x, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    values = tl.load(x + row * columns + at, mask=mask, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, axis=0), mask=mask)


@triton.jit
def layer_norm(x, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * columns
    out += row * columns
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for begin in range(0, columns, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for begin in range(0, columns, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        values = tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
        values = tl.where(at < columns, values - mean, 0.0)
        squares += values * values
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + eps)
    for begin in range(0, columns, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        mask = at < columns
        values = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        result = (values - mean) * scale * tl.load(weight + at, mask=mask) + tl.load(bias + at, mask=mask)
        tl.store(out + at, result, mask=mask)


@triton.jit
def product(a, b, out, size, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    depths = tl.arange(0, K)
    left = a + rows[:, None] * size + depths[None, :]
    right = b + depths[:, None] * size + columns[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for begin in range(0, size, K):
        mask = depths < size - begin
        total = tl.dot(
            tl.load(left, mask=mask[None, :], other=0.0), tl.load(right, mask=mask[:, None], other=0.0), total
        )
        left += K
        right += K * size
    mask = (rows[:, None] < size) & (columns[None, :] < size)
    tl.store(out + rows[:, None] * size + columns[None, :], total.to(tl.float16), mask=mask)


@triton.jit
def attention(
    q,
    k,
    v,
    out,
    scale,
    length,
    WIDTH: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    CAUSAL: tl.constexpr = True,
):
    """Of (batch and head, length, width), a tile of keys after the other."""
    first = tl.program_id(0) * M
    offset = tl.program_id(1) * length * WIDTH
    rows = first + tl.arange(0, M)
    columns = tl.arange(0, N)
    widths = tl.arange(0, WIDTH)
    queries = tl.load(q + offset + rows[:, None] * WIDTH + widths[None, :])
    highest = tl.full([M], -float("inf"), dtype=tl.float32)
    sums = tl.zeros([M], dtype=tl.float32)
    total = tl.zeros([M, WIDTH], dtype=tl.float32)
    for begin in range(0, first + M if CAUSAL else length, N):
        at = begin + columns
        keys = tl.load(k + offset + at[None, :] * WIDTH + widths[:, None])
        scores = tl.dot(queries, keys) * (scale * 1.44269504)
        if CAUSAL:
            scores = tl.where(rows[:, None] >= at[None, :], scores, -float("inf"))
        now = tl.maximum(highest, tl.max(scores, 1))
        powers = tl.exp2(scores - now[:, None])
        factor = tl.exp2(highest - now)
        sums = sums * factor + tl.sum(powers, 1)
        values = tl.load(v + offset + at[:, None] * WIDTH + widths[None, :])
        total = tl.dot(powers.to(values.dtype), values, total * factor[:, None])
        highest = now
    tl.store(out + offset + rows[:, None] * WIDTH + widths[None, :], total / sums[:, None])


@triton.jit
def nothing(x):
    pass


@triton.jit
def touch(x, size, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, at, mask=at < size)
