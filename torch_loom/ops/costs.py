"""Operations of factorisations and solves, from sizes: LAPACK's counts. A multiply-add counts as two."""

from __future__ import annotations

import math

from torch_loom.ops.model import Flops


def _matrices(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return batches, rows and columns."""
    if len(shape) < 2:
        return 1, shape[0] if shape else 1, 1
    return math.prod(shape[:-2]), shape[-2], shape[-1]


def factorisation(numerator: int, denominator: int) -> Flops:
    """Return the cost of factorising an m×n matrix: ``numerator/denominator·m·n·min(m, n)`` operations."""

    def flops(matrix: tuple[int, ...], result: tuple[int, ...]) -> int:
        batches, rows, columns = _matrices(matrix)
        return batches * rows * columns * min(rows, columns) * numerator // denominator

    return flops


def triangular_solve(matrix: tuple[int, ...], result: tuple[int, ...]) -> int:
    """Return n²·columns of a solve with n×n triangles."""
    batches, rows, columns = _matrices(matrix)
    return batches * rows * columns * (result[-1] if len(result) > 1 else 1)
