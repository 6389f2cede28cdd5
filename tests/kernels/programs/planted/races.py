"""Kernels whose programs race, each with its repaired twin: FAULT chooses. ``# NAME`` marks the line."""

# mypy: ignore-errors
# ruff: noqa: N803

import torch
import triton
import triton.language as tl


@triton.jit
def sum_without_atomic(x, total, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    part = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)))
    if FAULT:
        tl.store(total, tl.load(total) + part)  # sum_without_atomic
    else:
        tl.atomic_add(total, part)


@triton.jit
def overlapping_tiles(out, STEP: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    at = program * STEP + tl.arange(0, BLOCK)
    tl.store(out + at, at + program)  # overlapping_tiles


@triton.jit
def neighbours_in_place(x, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    right = tl.load(x + at + 1, mask=at + 1 < size, other=0)
    tl.store(out + at, tl.load(x + at) + right)  # neighbours_in_place


@triton.jit
def histogram_without_atomics(x, bins, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    which = tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    if FAULT:
        tl.store(bins + which, tl.load(bins + which) + 1)  # histogram_without_atomics
    else:
        tl.atomic_add(bins + which, 1)


@triton.jit
def parts_of_a_product(a, b, out, FAULT: tl.constexpr, N: tl.constexpr):
    at, k = tl.arange(0, N), tl.program_id(0) * N + tl.arange(0, N)
    width = tl.num_programs(0) * N
    left = tl.load(a + at[:, None] * width + k[None, :])
    right = tl.load(b + k[:, None] * N + at[None, :])
    to = out + at[:, None] * N + at[None, :]
    if FAULT:
        tl.store(to, tl.dot(left, right))  # parts_of_a_product
    else:
        tl.atomic_add(to, tl.dot(left, right))


@triton.jit
def lock_given_back_too_soon(x, total, lock, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    part = tl.load(x + tl.program_id(0) * BLOCK + at)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    sum_ = tl.load(total + at) + part
    if FAULT:
        tl.atomic_xchg(lock, 0)
    tl.store(total + at, sum_)  # lock_given_back_too_soon
    if not FAULT:
        tl.atomic_xchg(lock, 0)


@triton.jit
def lock_taken_too_late(x, total, lock, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    part = tl.load(x + tl.program_id(0) * BLOCK + at)
    before = tl.load(total + at) if FAULT else part  # lock_taken_too_late
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if not FAULT:
        before = tl.load(total + at)
    tl.store(total + at, before + part)
    tl.atomic_xchg(lock, 0)


@triton.jit
def last_program_sums(x, parts, total, count, FAULT: tl.constexpr, BLOCK: tl.constexpr, N: tl.constexpr):
    program = tl.program_id(0)
    tl.store(parts + program, tl.sum(tl.load(x + program * BLOCK + tl.arange(0, BLOCK))))
    is_last = program == N - 1
    if not FAULT:
        is_last = tl.atomic_add(count, 1) == N - 1
    if is_last:
        tl.store(total, tl.sum(tl.load(parts + tl.arange(0, N))))  # last_program_sums


@triton.jit
def transposed_in_place(x, out, N: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(out + c * N + r, tl.load(x + r * N + c))  # transposed_in_place


@triton.jit
def scattered_to_one_place(x, index, out, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    where = tl.load(index + at)
    if FAULT:
        tl.store(out + where, tl.load(x + at))  # scattered_to_one_place
    else:
        tl.atomic_max(out + where, tl.load(x + at))


@triton.jit
def halo_of_the_same_launch(x, y, out, size, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) * 2)
    if FAULT:
        left = tl.load(y + at - 1, mask=at > 0, other=0)  # halo_of_the_same_launch
    else:
        left = tl.load(x + at - 1, mask=at > 0, other=0) * 2
    tl.store(out + at, left)


@triton.jit
def doubled(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * 2)


def on_two_streams(fault):
    y, out, side = zeros(1024), zeros(1024), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    doubled[(1,)](x, y, 1024)
    if not fault:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        doubled[(1,)](y, out, 1024)  # on_two_streams
    torch.cuda.current_stream().wait_stream(side)


@triton.jit
def filled(out, begin, stride, value, BLOCK: tl.constexpr):
    at = tl.program_id(0) * stride + begin + tl.arange(0, BLOCK)
    tl.store(out + at, value)


def beside_one_another(out, step, second):
    """Fill parts of a tensor on two streams that do not wait for one another."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    filled[(4,)](out, 0, step, 1, 128)
    with torch.cuda.stream(side):
        filled[(4,)](out, second, step, 2, 128)  # parts_on_two_streams
    torch.cuda.current_stream().wait_stream(side)


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype, device="cuda")


x, whole = torch.rand(1024, device="cuda"), torch.arange(1024, device="cuda", dtype=torch.int32) % 8
square = torch.rand(32, 32, device="cuda")
a, b = torch.rand(16, 64, device="cuda"), torch.rand(64, 16, device="cuda")


def lock():
    return zeros(1, dtype=torch.int32)


CASES = {
    "on_two_streams": on_two_streams,
    "halves_on_two_streams": lambda fault: beside_one_another(zeros(1024), 128, 511 if fault else 512),
    "columns_on_two_streams": lambda fault: beside_one_another(zeros(4, 256), 256, 127 if fault else 128),
    "sum_without_atomic": lambda fault: sum_without_atomic[(4,)](x, zeros(1), fault, 256),
    "overlapping_tiles": lambda fault: overlapping_tiles[(4,)](
        zeros(1024, dtype=torch.int32), 192 if fault else 256, 256
    ),
    "neighbours_in_place": lambda fault: neighbours_in_place[(4,)](x, x if fault else zeros(1024), 1024, 256),
    "histogram_without_atomics": lambda fault: histogram_without_atomics[(4,)](
        whole, zeros(8, dtype=torch.int32), fault, 256
    ),
    "parts_of_a_product": lambda fault: parts_of_a_product[(4,)](a, b, zeros(16, 16), fault, 16),
    "lock_given_back_too_soon": lambda fault: lock_given_back_too_soon[(4,)](
        x, zeros(256), lock(), fault, 256
    ),
    "lock_taken_too_late": lambda fault: lock_taken_too_late[(4,)](x, zeros(256), lock(), fault, 256),
    "last_program_sums": lambda fault: last_program_sums[(4,)](x, zeros(4), zeros(1), lock(), fault, 256, 4),
    "transposed_in_place": lambda fault: transposed_in_place[(2, 2)](
        square, square if fault else zeros(32, 32), 32, 16
    ),
    "scattered_to_one_place": lambda fault: scattered_to_one_place[(4,)](
        torch.arange(1024, device="cuda", dtype=torch.int32), whole, zeros(8, dtype=torch.int32), fault, 256
    ),
    "halo_of_the_same_launch": lambda fault: halo_of_the_same_launch[(4,)](
        x, zeros(1024), zeros(1024), 1024, fault, 256
    ),
}
MARKS = dict.fromkeys(("halves_on_two_streams", "columns_on_two_streams"), "parts_on_two_streams")
