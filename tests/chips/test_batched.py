"""The formulas over many kernels at once are those over one."""

from __future__ import annotations

import numpy as np
import pytest

from torch_loom import chips
from torch_loom.chips.cost import CostModel, sweep
from torch_loom.chips.cost.batched import BATCHED, Columns
from torch_loom.chips.cost.families import FAMILIES
from torch_loom.chips.cost.formulas import FORMULAS
from torch_loom.chips.cost.lower import lower
from torch_loom.chips.cost.records import Kernel
from torch_loom.chips.cost.sweep_ops import OPS, Row
from torch_loom.chips.rates import rates

SIZES = (1, 8, 63, 200, 1024)


def shapes(op: str) -> list[tuple[int, ...]]:
    """Return shapes that a row of an op may have, small and large, odd and even."""
    if op.startswith(("conv2d", "depthwise")):
        return [
            (n, c, size, *((k, window, stride) if op.startswith("conv2d") else (window, stride)))
            for n in (1, 33)
            for c, k in ((3, 64), (64, 40), (256, 256))
            for size in (7, 57)
            for window, stride in ((1, 1), (3, 1), (3, 2), (7, 2))
        ]
    count = OPS[op][0]
    return [tuple(SIZES[(start + 2 * place) % len(SIZES)] for place in range(count)) for start in range(5)]


def kernels() -> dict[str, list[Kernel]]:
    found: dict[str, dict[Kernel, None]] = {}
    for op, (_, build) in OPS.items():
        for dtype in ("float32", "float16"):
            for shape in shapes(op):
                for kernel in lower(build(Row(dtype, shape))):
                    found.setdefault(kernel.family, {})[kernel] = None
    return {family: list(each) for family, each in found.items()}


KERNELS = kernels()


def test_every_formula_has_both() -> None:
    assert set(BATCHED) == set(FORMULAS)
    assert {FAMILIES[family].formula for family in KERNELS} == set(FORMULAS)


@pytest.mark.parametrize("chip", ["h200", "t4"])
@pytest.mark.parametrize("family", sorted(KERNELS))
def test_many_at_once_take_what_each_takes(family: str, chip: str) -> None:
    model = CostModel(rates(chips.load(chip)), {})
    own = KERNELS[family]
    together = BATCHED[FAMILIES[family].formula](Columns(own), model.coefficients[family], model.rates)
    alone = [model.time(kernel).total_ns for kernel in own]
    assert np.allclose(together, alone, rtol=1e-12)


@pytest.mark.parametrize("has_winograd", [0.0, 1.0])
def test_what_ran_is_timed_where_the_library_has_it(has_winograd: float) -> None:
    own = [kernel._replace(items=2.0) for kernel in KERNELS["convolution_vector"] if kernel.rows]
    model = CostModel(rates(chips.load("h200")), {"convolution_vector": {"winograd": has_winograd}})
    coefficients = model.coefficients["convolution_vector"]
    together = BATCHED["vector_convolution"](Columns(own), coefficients, model.rates)
    assert np.allclose(together, [model.time(kernel).total_ns for kernel in own], rtol=1e-12)


def test_a_case_of_each_op_is_among_them() -> None:
    assert len(KERNELS) > 25
    assert all(lower(sweep.describe(op, list(shapes(op)[0]), "float32")) for op in OPS)
