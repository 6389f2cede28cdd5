"""Facts of formats, and what a format cannot hold."""

from __future__ import annotations

import warnings

import pytest
import torch

from torch_loom import numerics
from torch_loom.numerics import DataFormat, ExponentFamily, MathFidelity

B8 = DataFormat.Bfp8_b


def test_facts_of_formats() -> None:
    values = {fmt.name: fmt.value for fmt in DataFormat}
    assert values == {
        "Float32": 0, "Float16": 1, "Bfp8": 2, "Bfp4": 3, "Float16_b": 5, "Bfp8_b": 6, "Bfp4_b": 7,
        "Int32": 8, "Lf8": 10, "Bfp2": 11, "UInt16": 12, "Int8": 14, "Bfp2_b": 15, "RawUInt8": 240,
        "RawUInt16": 241, "RawUInt32": 242, "Invalid": 255,
    }  # fmt: skip
    assert {f.name: f.value for f in MathFidelity} == {
        "LoFi": 0,
        "HiFi2": 2,
        "HiFi3": 3,
        "HiFi4": 4,
        "Invalid": 255,
    }
    for member in (*DataFormat, *MathFidelity):
        assert type(member).from_json(member.to_json()) is member  # type: ignore[attr-defined]
    sizes = {fmt: fmt.bytes_per_tile for fmt in DataFormat if fmt is not DataFormat.Invalid}
    assert (sizes[B8], sizes[DataFormat.Bfp4], sizes[DataFormat.Bfp2_b]) == (1088, 576, 320)
    assert (sizes[DataFormat.Float16], sizes[DataFormat.Float32], sizes[DataFormat.Int8]) == (
        2048,
        4096,
        1024,
    )
    assert B8.bytes_per_buffered_tile == 1120
    assert DataFormat.Bfp8.exponent_family is DataFormat.Lf8.exponent_family is ExponentFamily.A
    assert DataFormat.Float32.exponent_family is ExponentFamily.B
    assert DataFormat.Int8.exponent_family is ExponentFamily.INTEGER


@pytest.mark.parametrize("fmt", [fmt for fmt in DataFormat if fmt is not DataFormat.Invalid], ids=str)
def test_range_and_steps_are_those_of_values(fmt: DataFormat) -> None:
    low, high = fmt.range
    far = torch.tensor([3.4028234663852886e38, -3.4028234663852886e38]).unsqueeze(1)
    if fmt is not DataFormat.Float16_b:  # which rounds these up to infinity
        assert numerics.quantize(far, fmt).flatten().tolist() == [
            torch.tensor(high).item(),
            torch.tensor(low).item(),
        ]
    assert numerics.quantize(torch.tensor([1.0 + fmt.epsilon]), fmt).item() == min(1.0 + fmt.epsilon, high)
    assert numerics.quantize(torch.tensor([1.0 + fmt.epsilon / 4]), fmt).item() == 1.0
    if not fmt.is_integer and fmt.smallest > 2.0**-120:
        beside = [2.0 ** round(torch.tensor(fmt.smallest * 2 ** (fmt.significand_bits - 1)).log2().item())]
        row = torch.tensor([*beside, fmt.smallest, fmt.smallest / 4])
        if fmt.is_block:
            assert numerics.quantize(row, fmt)[1:].tolist() == [fmt.smallest, 0.0]
        else:
            assert numerics.quantize(row[1:], fmt).tolist() == [fmt.smallest, 0.0]


def test_the_first_value_that_is_not_held_warns_once_by_name() -> None:
    numerics.nonfinite_total(reset=True)
    x = torch.tensor([1.0, float("inf"), float("nan")])
    with pytest.warns(UserWarning, match="quantize: 2 infinite or NaN values"):
        numerics.quantize(x, DataFormat.Lf8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numerics.quantize(x, B8)
    assert numerics.nonfinite_total() == (3, 1)
    assert numerics.nonfinite(numerics.quantize(x, DataFormat.Float16_b)) == (0, 0)
    numerics.nonfinite_total(reset=True)


def test_nonfinite_of_other_tensors_counts_what_is_there() -> None:
    x = torch.zeros(2, 20)
    x[0, 3], x[0, 18], x[1, 5] = float("nan"), float("inf"), float("nan")
    assert numerics.nonfinite(x) == (3, 2)
    changed = numerics.quantize(x, B8)
    assert numerics.nonfinite(changed) == (1, 2)
    changed.zero_()
    assert numerics.nonfinite(changed) == (0, 0)
    assert numerics.nonfinite(torch.arange(3)) == (0, 0)
