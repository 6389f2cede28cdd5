"""Operations of linear algebra, by hand."""

from __future__ import annotations

from torch_loom import ops
from torch_loom.chips.cost import Op, Tensor
from torch_loom.chips.cost.lower import lower


def _flops(op: str, matrix: tuple[int, ...], result: tuple[int, ...]) -> int:
    count = ops.family_of(op).flops
    assert count is not None
    return count(matrix, result)


def test_factorisations() -> None:
    assert _flops("aten::linalg_cholesky_ex", (2, 9, 9), (2, 9, 9)) == 2 * 729 * 2 // 3
    assert _flops("aten::_linalg_svd", (5, 9, 4), (5, 9, 4)) == 5 * 9 * 4 * 4 * 9


def test_solves() -> None:
    assert _flops("aten::linalg_solve_triangular", (2, 9, 9), (2, 9, 4)) == 2 * 9 * 9 * 4


def test_solves_that_take_the_right_side_first_take_the_same_time() -> None:
    matrix, side = Tensor.dense("float32", 2048, 2048), Tensor.dense("float32", 2048, 8)
    expected = lower(Op("linalg_solve_triangular", (matrix, side), (side,)))
    for op in ("triangular_solve", "cholesky_solve", "_cholesky_solve_helper"):
        assert lower(Op(op, (side, matrix), (side,))) == expected, op
