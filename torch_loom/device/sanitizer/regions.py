"""Which bytes a strided tensor covers, and whether two of them share one.

Interleaved views of one storage (its columns, say) share no byte and are no race, however much their extents
overlap. The answer is exact, within a bound on the work: views with the same strides and ranges of bytes are
decided in a few steps. Where the bound ends the search, two views are taken to be apart, so that what is
reported is a race in every case.
"""

from __future__ import annotations

import functools

# What the tape reports of a tensor: address, sizes, strides in elements, bytes of an element, is it written.
# The dtype, which it reports as well, does not matter here.
Operand = tuple[int, tuple[int, ...], tuple[int, ...], int, bool]

# Dimensions as (stride in bytes, count), the smallest stride first.
Dims = tuple[tuple[int, int], ...]

_MAX_STEPS = 4096


@functools.lru_cache(maxsize=4096)
def _shape(sizes: tuple[int, ...], strides: tuple[int, ...], item_bytes: int) -> tuple[int, Dims, int]:
    """Return a tensor's bytes as runs without gaps: length of a run, how it is repeated, extent of all."""
    run = item_bytes
    dims: list[tuple[int, int]] = []
    for stride, count in sorted(
        (stride * item_bytes, size) for size, stride in zip(sizes, strides, strict=True)
    ):
        if count == 1 or stride == 0:
            continue
        if not dims and stride <= run:
            run += stride * (count - 1)
        elif dims and stride == dims[-1][0] * dims[-1][1]:
            dims[-1] = (dims[-1][0], dims[-1][1] * count)
        else:
            dims.append((stride, count))
    return run, tuple(dims), _extent(run, tuple(dims))


def _extent(run: int, dims: Dims) -> int:
    return run + sum(stride * (count - 1) for stride, count in dims)


def extent(operand: Operand) -> int:
    """Return the number of bytes from a tensor's first to its last."""
    return _shape(operand[1], operand[2], operand[3])[2]


def covers(operand: Operand, start: int, end: int) -> bool:
    """Return whether a tensor covers all bytes from ``start`` up to ``end``."""
    if operand[0] > start:
        return False
    run, dims, _ = _shape(operand[1], operand[2], operand[3])
    return not dims and operand[0] + run >= end


def overlap(left: Operand, right: Operand) -> bool:
    """Return whether two tensors share a byte; False as well where that would take too long to find out."""
    left_run, left_dims, left_extent = _shape(left[1], left[2], left[3])
    right_run, right_dims, right_extent = _shape(right[1], right[2], right[3])
    if left[0] + left_extent <= right[0] or right[0] + right_extent <= left[0]:
        return False
    return _Search().meet(left[0], left_run, left_dims, right[0], right_run, right_dims)


class _Search:
    def __init__(self) -> None:
        self._steps_left = _MAX_STEPS

    def meet(
        self, start: int, run: int, dims: Dims, other_start: int, other_run: int, other_dims: Dims
    ) -> bool:
        """Take the outermost dimension apart and go on with those parts whose extents meet."""
        self._steps_left -= 1
        if not dims and not other_dims:
            return start < other_start + other_run and other_start < start + run
        if not dims or (other_dims and other_dims[-1][0] > dims[-1][0]):
            start, run, dims, other_start, other_run, other_dims = (
                *(other_start, other_run, other_dims),
                *(start, run, dims),
            )
        stride, count = dims[-1]
        inner = dims[:-1]
        first, last = 0, count - 1
        if other_dims and other_dims[-1][0] == stride:
            # Only how many strides lie between the two matters.
            first, last = 1 - other_dims[-1][1], count - 1
            other_dims = other_dims[:-1]
        # Part i, at start + i·stride, meets the other's extent.
        first = max(first, (other_start - start - _extent(run, inner)) // stride + 1)
        last = min(last, -((start - other_start - _extent(other_run, other_dims)) // stride) - 1)
        for index in range(first, last + 1):
            if self._steps_left <= 0:
                return False
            if self.meet(start + index * stride, run, inner, other_start, other_run, other_dims):
                return True
        return False
