"""Kernels given as Triton's IR: what they compute, and what they report."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.launching import Kernel


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 5000])
def test_masked_addition(size: int) -> None:
    x, y, out = floats(size), floats(size, seed=1), np.zeros(size, np.float32)
    assert Kernel("add").run((-(-size // 1024), 1, 1), x, y, out, size) == ""
    np.testing.assert_array_equal(out, x + y)


def test_arguments_that_are_written() -> None:
    assert Kernel("add").emitted.are_written == (False, False, True)


@pytest.mark.parametrize(("wrong", "words"), [(0, "reads 4 bytes"), (2, "writes 4 bytes")])
def test_an_access_behind_an_argument_is_named(wrong: int, words: str) -> None:
    arrays = [np.ones(2048, np.float32) for _ in range(3)]
    arrays[wrong] = arrays[wrong][:1500]
    error = Kernel("add").run((2, 1, 1), *arrays, 2048)
    assert error.startswith("Mkernels.py:18: program (1, 0, 0) of (2, 1, 1) "), error
    assert words in error
    assert f", 0 bytes after the end of argument {'xyo'[wrong]}" in error


def test_nothing_is_written_past_the_end() -> None:
    memory = np.zeros(4096, np.float32)
    error = Kernel("add").run((2, 1, 1), floats(4096), floats(4096), memory[:1500], 2048)
    assert error
    assert not memory[1500:].any()


def test_a_mask_keeps_a_program_off_memory() -> None:
    x = floats(10)
    out = np.zeros(10, np.float32)
    assert Kernel("add").run((4, 1, 1), x, x, out, 10) == ""
    np.testing.assert_array_equal(out, x + x)


@pytest.mark.parametrize("columns", [1, 5, 781, 1024])
def test_softmax(columns: int) -> None:
    x = floats(7, columns)
    out = np.zeros_like(x)
    assert Kernel("softmax").run((7, 1, 1), out, x, columns, columns, columns) == ""
    expected = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, expected / expected.sum(1, keepdims=True), rtol=2e-6)


@pytest.mark.parametrize("size", [128, 200, 512])
def test_product_of_halves(size: int) -> None:
    a, b = floats(size, size).astype(np.float16), floats(size, size, seed=1).astype(np.float16)
    out = np.zeros((size, size), np.float16)
    programs = -(-size // 128) * -(-size // 256)
    assert Kernel("product").run((programs, 1, 1), a, b, out, size, size, size, size, size, size) == ""
    expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(out.astype(np.float32), expected, rtol=2e-3, atol=2e-2)


def test_a_square_block_is_transposed_when_it_is_whole() -> None:
    x, y, out = floats(16, 16), floats(16, 16, seed=1), np.zeros((16, 16), np.float32)
    assert Kernel("transposed").run((1, 1, 1), x, y, out) == ""
    np.testing.assert_allclose(out, (2 * x).T @ y, rtol=1e-5, atol=1e-5)


def test_rows_by_their_index() -> None:
    table, index, out = floats(40, 20), np.random.default_rng(0).permutation(16), np.zeros((16, 32))
    out = out.astype(np.float32)
    assert Kernel("rows").run((2, 1, 1), table, index, out, 20) == ""
    np.testing.assert_array_equal(out[:, :20], table[:16])
    np.testing.assert_array_equal(out[:, 20:], 7)


@pytest.mark.parametrize(("row", "words"), [(40, "0 bytes after the end"), (-1, "80 bytes before the begin")])
def test_a_row_outside_of_its_table_is_named(row: int, words: str) -> None:
    table, index, out = floats(40, 20), np.arange(16), np.zeros((64, 32), np.float32)
    index[11] = row
    error = Kernel("rows").run((2, 1, 1), table, index, out[16:], 20)
    assert error.startswith("Mkernels.py:7: program (1, 0, 0) of (2, 1, 1) reads 4 bytes"), error
    assert f"{words} of argument table" in error


def test_rows_are_read_before_rows_of_the_same_table_are_written() -> None:
    table, index = floats(10, 32), np.arange(8)
    expected = np.concatenate([table[:1], table[:8], table[9:]])
    assert Kernel("rows").run((1, 1, 1), table, index, table[1:], 32) == ""
    np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize("index", [16, -1, 2**31 - 1])
def test_an_index_of_gather_outside_of_its_block_is_named(index: int) -> None:
    x, indices, out = floats(16), np.arange(16, dtype=np.int32)[::-1].copy(), np.zeros(16, np.float32)
    assert Kernel("picked").run((1, 1, 1), x, indices, out) == ""
    np.testing.assert_array_equal(out, x[::-1])
    indices[3] = index
    error = Kernel("picked").run((1, 1, 1), x, indices, out)
    assert error == (
        f"Akernels.py:14: program (0, 0, 0): tl.gather is given the index {index}, and its source has 16 "
        "elements there"
    )
