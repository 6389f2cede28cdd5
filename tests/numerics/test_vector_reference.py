"""The reference over arrays is that of single elements, and the kernels equal it over many more."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks._formats import INSTRUCTION_SETS, differences, differing, matrices
from tests.numerics import reference, vector_reference
from tests.numerics.inputs import bits, boundaries, canonical, close, finite, random_bits, special_blocks
from torch_loom.numerics import DataFormat

FORMATS = pytest.mark.parametrize("fmt", reference.FORMATS, ids=lambda fmt: fmt.name)


def assert_same(fmt: DataFormat, rows: Tensor) -> None:
    got = vector_reference.rows(fmt, rows.view(torch.int32).numpy())
    lists = [bits(row) for row in rows]
    wanted = [reference.row(fmt, row) for row in lists]
    assert canonical(got.flatten().tolist()) == [value for row in wanted for value in row]
    counted = [reference.counts(fmt, row) for row in lists]
    assert vector_reference.counts(fmt, rows.view(torch.int32).numpy()) == tuple(
        map(sum, zip(*counted, strict=True))
    )


@pytest.mark.sampled(3)
@FORMATS
def test_arrays_are_elements(fmt: DataFormat) -> None:
    values = boundaries([1, 3, 7, 10])
    blocks = torch.stack(special_blocks())
    assert_same(fmt, values.unsqueeze(1))
    assert_same(fmt, torch.stack([values, values.roll(7)], 1)[::5])
    assert_same(fmt, blocks)
    assert_same(fmt, blocks.roll(5, 1).reshape(-1, 23 * 16 // 8))
    for make in (random_bits, finite, close):
        assert_same(fmt, make(5 * 37).view(5, 37))


@FORMATS
def test_a_wrong_kernel_would_be_seen(fmt: DataFormat) -> None:
    rows = close(64).view(4, 16)
    wanted = vector_reference.rows(fmt, rows.view(torch.int32).numpy())
    assert differing(wanted, wanted) == 0
    assert differing(wanted, wanted ^ np.uint32(1)) == 64
    nan = np.array([0x7FC00000, 0xFFC00001, 0x80000000], np.uint32)
    assert differing(nan, np.array([0x7FC00001, 0x7FC00000, 0], np.uint32)) == 1


def test_inputs_are_of_every_kind() -> None:
    words = list(matrices(50_000))
    assert sum(each.size for each in words) >= 50_000
    assert any(each.shape[1] % 16 for each in words)
    whole = np.concatenate([each.reshape(-1) for each in words])
    magnitude = whole & np.uint32(0x7FFFFFFF)
    assert len(np.unique(magnitude >> 23)) == 256
    for part in (magnitude > 0x7F800000, magnitude == 0x7F800000, (magnitude < 1 << 23) & (magnitude > 0)):
        assert part.sum() > 100


@pytest.mark.slow
@FORMATS
def test_kernels_are_the_reference(fmt: DataFormat) -> None:
    found = differences(fmt, 300_000)
    assert found["elements"] >= 300_000
    assert found["instruction_sets"][0] == INSTRUCTION_SETS[0]
    assert found["differences"] == 0
