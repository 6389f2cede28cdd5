"""Launches in which the loops of a kernel run once: the kernel without them gives the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.launching import TEXTS, Kernel
from torch_loom.kernels.emission import emit
from torch_loom.kernels.lowering.once import run_once
from torch_loom.kernels.ttir import read

BLOCK = 128


def rows(columns: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((3, columns)).astype(np.float32)


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return Kernel("normalised")


@pytest.fixture(scope="module")
def with_loops() -> Kernel:
    return Kernel("normalised", changed=lambda text: text.replace("return run_once(program);", ";"))


@pytest.mark.parametrize("columns", [1, 5, 127, 128, 129, 300])
@pytest.mark.parametrize("times", [0, 2])
def test_the_numbers_of_the_loops(kernel: Kernel, with_loops: Kernel, columns: int, times: int) -> None:
    x = rows(columns)
    out, expected = np.zeros_like(x), np.zeros_like(x)
    assert kernel.run((3, 1, 1), x, out, columns, times) == ""
    assert with_loops.run((3, 1, 1), x, expected, columns, times) == ""
    np.testing.assert_allclose(out, expected, atol=1e-6)  # a masked sum may have another order
    np.testing.assert_allclose(out, (x - x.mean(1, keepdims=True)) * 0.5**times, atol=1e-6)


@pytest.mark.parametrize("columns", [0, -1, -(1 << 31)])
def test_no_turn(kernel: Kernel, columns: int) -> None:
    out = np.ones(4, np.float32)
    assert kernel.run((1, 1, 1), rows(4), out, columns, 1) == ""
    np.testing.assert_array_equal(out, np.ones(4, np.float32))


@pytest.mark.parametrize("columns", [BLOCK, 2 * BLOCK])
def test_an_access_behind_an_argument_is_named(kernel: Kernel, columns: int) -> None:
    x = rows(columns)
    error = kernel.run((3, 1, 1), x, np.zeros((2, columns), np.float32), columns, 1)
    assert error.startswith("Mkernels.py:17: program (2, 0, 0) of (3, 1, 1) writes 4 bytes"), error
    assert "after the end of argument out" in error


def test_what_has_no_such_loops() -> None:
    for name in ("add", "softmax", "product"):  # none, none, one with a product of matrices
        assert run_once(read((TEXTS / f"{name}.ttir").read_text(encoding="utf-8")).kernel) is None


def test_the_sanitizer_sees_the_loops() -> None:
    module = read((TEXTS / "normalised.ttir").read_text(encoding="utf-8"))
    assert "run_once" in emit(module).text
    assert "run_once" not in emit(module, is_watched=True).text


def test_accesses_are_counted_as_they_are_written(kernel: Kernel) -> None:
    assert kernel.emitted.checks == {"ends": 3}
