"""Which axes of a block one loop runs over."""

from __future__ import annotations

import numpy as np

from tests.kernels.launching import TEXTS, Kernel
from torch_loom.kernels.lowering import lower
from torch_loom.kernels.lowering.axes import merged_axes
from torch_loom.kernels.lowering.plan import LoweredFunction, Nest
from torch_loom.kernels.ttir import read


def lowered(name: str) -> tuple[LoweredFunction, list[Nest]]:
    (function,) = lower(read((TEXTS / f"{name}.ttir").read_text(encoding="utf-8"))).functions
    return function, [step for step in function.plans[0].steps if isinstance(step, Nest)]


def test_axes_that_no_op_tells_apart_are_one_loop() -> None:
    function, nests = lowered("sorted")
    cubes = [one for one in nests if one.shape == (2,) * 6]
    # One for each time that pairs are compared: a pair's partner is looked up in the same loop.
    assert len(cubes) == 1 + 2 + 3 + 4 + 5 + 6
    groups = [merged_axes(one, function) for one in cubes]
    # The axis of a stage and that of a step are loops of their own.
    assert groups[0] == [(0, 1, 2, 3), (4,), (5,)]
    assert groups[1] == [(0, 1, 2), (3,), (4,), (5,)]
    assert groups[-6] == [(0,), (1, 2, 3, 4, 5)]
    assert groups[-3] == [(0, 1, 2), (3,), (4, 5)]
    assert groups[-1] == [(0, 1, 2, 3, 4), (5,)]


def test_rows_and_columns_that_an_index_tells_apart_are_two_loops() -> None:
    function, nests = lowered("transposed")
    found = {tuple(merged_axes(one, function)) for one in nests if len(one.shape) == 2}
    assert found == {((0,), (1,))}


def test_a_block_is_sorted_by_axes_of_two() -> None:
    x = np.random.default_rng(0).permutation(64).astype(np.float32)
    out = np.zeros(64, np.float32)
    kernel = Kernel("sorted")
    assert kernel.run((1, 1, 1), x, out) == ""
    np.testing.assert_array_equal(out, np.sort(x))
