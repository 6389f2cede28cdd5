"""Kernels that leave their memory, each with its repaired twin: FAULT chooses. ``# NAME`` marks the line."""

# mypy: ignore-errors
# ruff: noqa: N803

import torch
import triton
import triton.language as tl


@triton.jit
def missing_mask_of_a_load(x, out, size, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = None if FAULT else at < size
    values = tl.load(x + at, mask=mask)  # missing_mask_of_a_load
    tl.store(out + at, values, mask=at < size)


@triton.jit
def missing_mask_of_a_store(x, out, size, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < size)
    if FAULT:
        tl.store(out + at, values)  # missing_mask_of_a_store
    else:
        tl.store(out + at, values, mask=at < size)


@triton.jit
def bound_by_one(x, out, size, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at <= size if FAULT else at < size
    values = tl.load(x + at, mask=mask)  # bound_by_one
    tl.store(out + at, values, mask=at < size)


@triton.jit
def left_neighbour(x, out, size, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < size if FAULT else (at < size) & (at > 0)
    left = tl.load(x + at - 1, mask=mask, other=0)  # left_neighbour
    tl.store(out + at, left, mask=at < size)


@triton.jit
def right_neighbour(x, out, size, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < size if FAULT else at + 1 < size
    right = tl.load(x + at + 1, mask=mask, other=0)  # right_neighbour
    tl.store(out + at, right, mask=at < size)


@triton.jit
def stride_of_another_tensor(x, out, stride, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + at)  # stride_of_another_tensor
    tl.store(out + row * BLOCK + at, values)


@triton.jit
def masks_of_the_wrong_axes(x, out, rows, columns, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    r, c = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    mask = (r < columns) & (c < rows) if FAULT else (r < rows) & (c < columns)
    values = tl.load(x + r * columns + c, mask=mask)  # masks_of_the_wrong_axes
    tl.store(out + r * columns + c, values, mask=(r < rows) & (c < columns))


@triton.jit
def depth_without_a_mask(a, b, out, depth, FAULT: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    total = tl.zeros((N, N), tl.float32)
    for begin in range(0, depth, N):
        k = begin + at
        if FAULT:
            left = tl.load(a + at[:, None] * depth + k[None, :])
            right = tl.load(b + k[:, None] * N + at[None, :])  # depth_without_a_mask
        else:
            left = tl.load(a + at[:, None] * depth + k[None, :], mask=k[None, :] < depth, other=0)
            right = tl.load(b + k[:, None] * N + at[None, :], mask=k[:, None] < depth, other=0)
        total = tl.dot(left, right, total)
    tl.store(out + at[:, None] * N + at[None, :], total)


@triton.jit
def one_program_too_many(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))  # one_program_too_many


@triton.jit
def row_of_no_table(table, index, out, rows, FAULT: tl.constexpr, WIDTH: tl.constexpr, N: tl.constexpr):
    which, at = tl.load(index + tl.arange(0, N)), tl.arange(0, WIDTH)
    mask = which >= 0 if FAULT else which < rows
    values = tl.load(table + which[:, None] * WIDTH + at[None, :], mask=mask[:, None])  # row_of_no_table
    tl.store(out + tl.arange(0, N)[:, None] * WIDTH + at[None, :], values)


@triton.jit
def scattered_too_far(x, index, out, size, FAULT: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    where = tl.load(index + at)
    mask = where >= 0 if FAULT else where < size
    tl.store(out + where, tl.load(x + at), mask=mask)  # scattered_too_far


@triton.jit
def negative_index(x, index, out, size, FAULT: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    which = tl.load(index + at)
    if not FAULT:
        which = tl.where(which < 0, which + size, which)
    tl.store(out + at, tl.load(x + which))  # negative_index


@triton.jit
def bin_behind_the_last(x, bins, count, FAULT: tl.constexpr, N: tl.constexpr):
    which = (tl.load(x + tl.arange(0, N)) * count).to(tl.int32)
    if not FAULT:
        which = tl.minimum(which, count - 1)
    tl.atomic_add(bins + which, 1)  # bin_behind_the_last


@triton.jit
def block_without_a_boundary(x, out, size, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.make_block_ptr(x, (size,), (1,), (0,), (BLOCK,), (0,))
    checked: tl.constexpr = () if FAULT else (0,)
    values = tl.load(block, boundary_check=checked)  # block_without_a_boundary
    tl.store(out + tl.arange(0, BLOCK), values)


@triton.jit
def result_a_program(x, out, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    total = tl.sum(tl.load(x + program * BLOCK + tl.arange(0, BLOCK)))
    tl.store(out + program, total)  # result_a_program


@triton.jit
def through_an_address(address, out, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(address.to(tl.int64).to(tl.pointer_type(tl.float32)) + at)  # through_an_address
    tl.store(out + at, values)


@triton.jit
def moved(x, out, by, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at + by))  # neighbour


@triton.jit
def whole_size_of_a_view(x, out, size, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < size), mask=at < size)  # whole_size_of_a_view


@triton.jit
def gathered_outside(x, index, out, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.gather(tl.load(x + at), tl.load(index + at), axis=0)  # gathered_outside
    tl.store(out + at, values)


def ones(*shape):
    return torch.ones(shape, device="cuda")


x, out, table, outs = ones(1000), ones(2048), ones(10, 16), ones(4, 256)
index = torch.arange(16, device="cuda") % 10
wrong, negative = index.clone(), index.clone()
wrong[5], negative[7] = 10, -1
inside, halves = torch.arange(16, device="cuda", dtype=torch.int32), torch.rand(16, device="cuda") * 0.9
outside = inside.clone()
outside[9] = 16
filled = halves.clone()
filled[3] = 1.0
gone = torch.ones(3_000_000, device="cuda").data_ptr()
neighbour = ones(1000)
distance = (neighbour.data_ptr() - x.data_ptr()) // 4
bins = torch.zeros(8, dtype=torch.int32, device="cuda")

# What is launched with the fault, and without.
CASES = {
    "missing_mask_of_a_load": lambda fault: missing_mask_of_a_load[(1,)](x, out, 1000, fault, 1024),
    "missing_mask_of_a_store": lambda fault: missing_mask_of_a_store[(1,)](out, x, 1000, fault, 1024),
    "bound_by_one": lambda fault: bound_by_one[(1,)](x, out, 1000, fault, 1024),
    "left_neighbour": lambda fault: left_neighbour[(1,)](x, out, 1000, fault, 1024),
    "right_neighbour": lambda fault: right_neighbour[(1,)](x, out, 1000, fault, 1024),
    "stride_of_another_tensor": lambda fault: stride_of_another_tensor[(4,)](
        outs, out, 300 if fault else 256, 256
    ),
    "masks_of_the_wrong_axes": lambda fault: masks_of_the_wrong_axes[(1,)](table, out, 10, 16, fault, 16),
    "depth_without_a_mask": lambda fault: depth_without_a_mask[(1,)](
        ones(16, 40), ones(40, 16), out, 40, fault, 16
    ),
    "one_program_too_many": lambda fault: one_program_too_many[(5 if fault else 4,)](outs, out, 256),
    "row_of_no_table": lambda fault: row_of_no_table[(1,)](table, wrong, out, 10, fault, 16, 16),
    "scattered_too_far": lambda fault: scattered_too_far[(1,)](x, wrong, bins, 8, fault, 16),
    "negative_index": lambda fault: negative_index[(1,)](table, negative, out, 10, fault, 16),
    "bin_behind_the_last": lambda fault: bin_behind_the_last[(1,)](filled, bins, 8, fault, 16),
    "block_without_a_boundary": lambda fault: block_without_a_boundary[(1,)](x, out, 1000, fault, 1024),
    "result_a_program": lambda fault: result_a_program[(4,)](outs, ones(2 if fault else 4), 256),
    "freed_tensor": lambda fault: through_an_address[(1,)](gone if fault else x.data_ptr(), out, 16),
    "null": lambda fault: through_an_address[(1,)](0 if fault else x.data_ptr(), out, 16),
    "other_tensor": lambda fault: moved[(1,)](x, out, distance if fault else 0, 16),
    "whole_size_of_a_view": lambda fault: whole_size_of_a_view[(1,)](
        x[10:], out, 1000 - 10 * (not fault), 1024
    ),
    "gathered_outside": lambda fault: gathered_outside[(1,)](x, outside if fault else inside, out, 16),
}
# The kernel whose line is marked, where it has another name than the case.
MARKS = {"freed_tensor": "through_an_address", "null": "through_an_address", "other_tensor": "neighbour"}
