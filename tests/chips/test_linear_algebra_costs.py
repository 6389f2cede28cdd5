"""Factorisations and solves take the time of their operations, not of their bytes."""

from __future__ import annotations

import pytest

from torch_loom.chips import load
from torch_loom.chips.cost import CostModel, Op
from torch_loom.chips.cost.lower import lower
from torch_loom.chips.cost.records import Tensor
from torch_loom.chips.rates import efficiency, rates

OPS = (
    "linalg_svd",
    "linalg_qr",
    "linalg_cholesky_ex",
    "_linalg_eigh",
    "linalg_inv_ex",
    "linalg_solve_triangular",
)


def seconds(name: str, *shape: int, dtype: str = "float32") -> float:
    chip = load("h100")
    matrix = Tensor.dense(dtype, *shape)
    return CostModel(rates(chip), efficiency(chip)).cost(Op(name, (matrix,), (matrix,))).seconds


@pytest.mark.parametrize("name", OPS)
def test_time_grows_with_the_cube_of_the_size(name: str) -> None:
    # Bytes alone would grow by 4 each time.
    assert seconds(name, 8192, 8192) > 5 * seconds(name, 4096, 4096)
    assert seconds(name, 4096, 4096) > 5 * seconds("add", 4096, 4096)
    assert seconds(name, 8, 1024, 1024) > seconds(name, 1024, 1024)


def test_singular_values_take_longer_than_a_triangular_factor() -> None:
    assert seconds("linalg_svd", 2048, 2048) > 3 * seconds("linalg_cholesky_ex", 2048, 2048)


@pytest.mark.parametrize("dtype", ["float64", "complex64", "complex128", "float16"])
@pytest.mark.parametrize("shape", [(64, 32), (3, 16, 16), (1, 1), (8,)])
def test_every_dtype_and_shape_has_a_time(dtype: str, shape: tuple[int, ...]) -> None:
    assert 0 < seconds("linalg_qr", *shape, dtype=dtype) < 1
    assert not lower(Op("linalg_qr", (Tensor.dense(dtype, 0, 0),), (Tensor.dense(dtype, 0, 0),)))
