"""Kernels that read what nothing has written, or whose offsets wrap around; as in bounds.py."""

# mypy: ignore-errors
# ruff: noqa: N803

import torch
import triton
import triton.language as tl


@triton.jit
def added_to_nothing(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(out + at) + tl.load(x + at))  # added_to_nothing


@triton.jit
def counter_without_a_begin(x, counter, BLOCK: tl.constexpr):
    tl.atomic_add(counter, tl.sum(tl.load(x + tl.arange(0, BLOCK))))  # counter_without_a_begin


@triton.jit
def write_rows(out, stride, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * stride + at, at.to(tl.float32), mask=at < WIDTH)


@triton.jit
def padding_is_read(x, out, stride, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * stride + at, mask=at < WIDTH, other=0)  # padding_is_read
    tl.store(out + tl.program_id(0), tl.sum(values))


@triton.jit
def too_many_parts(parts, total, COUNT: tl.constexpr):
    tl.store(total, tl.sum(tl.load(parts + tl.arange(0, COUNT))))  # too_many_parts


@triton.jit
def row_times_stride(out, row, stride, FAULT: tl.constexpr):
    if not FAULT:
        row = row.to(tl.int64)
    to = out + row * stride  # row_times_stride
    tl.store(to + tl.arange(0, 16), tl.zeros((16,), tl.int8))


@triton.jit
def rows_times_stride(out, first, stride, FAULT: tl.constexpr):
    rows = first + tl.arange(0, 2)
    if not FAULT:
        rows = rows.to(tl.int64)
    to = out + rows[:, None] * stride + tl.arange(0, 16)[None, :]
    tl.store(to, tl.zeros((2, 16), tl.int8))  # rows_times_stride


@triton.jit
def program_times_block(out, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    if not FAULT:
        program = program.to(tl.int64)
    tl.store(out + program * BLOCK, 1)  # program_times_block


@triton.jit
def offset_that_grows(out, count, step, FAULT: tl.constexpr):
    offset = tl.program_id(0) if FAULT else tl.program_id(0).to(tl.int64)
    for _ in range(count):
        tl.store(out + offset, 1)
        offset += step  # offset_that_grows


def empty(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="cuda")


def begun(fault, *shape):
    return empty(*shape) if fault else torch.zeros(shape, device="cuda")


def padded(width):
    rows, out = empty(4, 64), empty(4)
    write_rows[(4,)](rows, 64, 64, 50)
    padding_is_read[(4,)](rows, out, 64, 64, width)


def parts(count):
    rows = empty(64)
    write_rows[(1,)](rows, 64, 64, 32)
    too_many_parts[(1,)](rows, empty(1), count)


def copied_by_halves(fault):
    source, target = torch.ones(64, device="cuda"), empty(64)
    target[:32].copy_(source[:32])
    if not fault:
        target[32:].copy_(source[32:])
    too_many_parts[(1,)](target, empty(1), 64)


x = torch.rand(256, device="cuda")
# Of two gibibytes and a little; what no kernel touches takes no memory of the host.
large = empty(2**31 + 2**20, dtype=torch.int8)

CASES = {
    "added_to_nothing": lambda fault: added_to_nothing[(1,)](x, begun(fault, 256), 256),
    "counter_without_a_begin": lambda fault: counter_without_a_begin[(1,)](x, begun(fault, 1), 256),
    "padding_is_read": lambda fault: padded(64 if fault else 50),
    "too_many_parts": lambda fault: parts(64 if fault else 32),
    "copied_by_halves": copied_by_halves,
    "row_times_stride": lambda fault: row_times_stride[(1,)](large, 2**16, 2**15, fault),
    "rows_times_stride": lambda fault: rows_times_stride[(1,)](large, 2**16 - 1, 2**15, fault),
    "program_times_block": lambda fault: program_times_block[(2**16 // 2**12 + 1,)](large, fault, 2**27),
    "offset_that_grows": lambda fault: offset_that_grows[(1,)](large, 3, 2**30 + 1, fault),
}
# The kernel whose line is marked, where it has another name than the case.
MARKS = {"copied_by_halves": "too_many_parts"}
