"""What a card's power lets it go on at, by its data sheet; and no forecast above the peak."""

from __future__ import annotations

import dataclasses

import pytest

from torch_loom import chips
from torch_loom.chips import rates as chip_rates
from torch_loom.chips.cost.records import Op, Tensor
from torch_loom.chips.power import is_issue_bound, sustained_share


def rate_of(name: str, dtype: str, reaches: float) -> float:
    chip = chips.load(name)
    return sustained_share(chip, dtype) * chip.peak_tflops[dtype] * reaches


# TFLOP/s of torch.matmul, sizes of 4096 and more: https://github.com/zzc0721/torch-performance-test-data
@pytest.mark.parametrize(
    ("name", "dtype", "reaches", "measured"),
    [
        ("t4", "float32", 0.9, 4.3),
        ("t4", "float16", 0.85, 42.0),
        ("p4", "float32", 0.9, 4.1),
        ("l4", "float32", 0.7, 11.1),
        ("l4", "float16", 0.85, 55.0),
        ("l40s", "float32", 0.7, 46.9),
        ("rtx4090", "float32", 0.7, 54.8),
        ("rtx5090", "float32", 0.7, 68.0),
        ("a40", "float32", 0.7, 23.7),
        ("v100", "float32", 0.9, 14.1),
        ("b200", "float16", 0.85, 1650.0),
    ],
)
def test_cards_go_on_at_what_was_measured(name: str, dtype: str, reaches: float, measured: float) -> None:
    assert rate_of(name, dtype, reaches) == pytest.approx(measured, rel=0.15)


def test_more_watts_are_never_slower() -> None:
    t4 = chips.load("t4")
    shares = [
        sustained_share(dataclasses.replace(t4, power_max_watts=watts), "float32")
        for watts in (20.0, 50.0, 70.0, 150.0, 300.0)
    ]
    assert shares == sorted(shares)
    assert shares[0] < 0.3
    assert shares[-1] == 1.0


@pytest.mark.parametrize("name", ["loom1", "wormhole_b0", "mi300x", "h100", "h200", "a100", "v100"])
def test_cards_without_a_limit_have_their_peak(name: str) -> None:
    chip = chips.load(name)
    assert all(sustained_share(chip, dtype) == 1.0 for dtype in chip.peak_tflops)


def test_which_cores_share_what_they_start() -> None:
    shared = {name for name in chips.available() if is_issue_bound(chips.load(name))}
    assert {"a40", "rtx3090", "l4", "h100", "h200", "b200", "rtx5090"} <= shared
    assert shared.isdisjoint({"k80", "p4", "p100", "v100", "t4", "a100"})


def test_the_roofline_is_the_peak_and_rates_are_what_lasts() -> None:
    t4 = chips.load("t4")
    assert chip_rates.roofline(t4, "float32")[0] == pytest.approx(8.1e12)
    assert chip_rates.rates(t4).flops_per_ns["float32"] < 0.65 * 8100.0


@pytest.mark.parametrize("name", ["a10", "l4", "l40s", "rtx4090", "rtx5090", "b200"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_card_that_nobody_measured_stays_below_its_peak(name: str, dtype: str) -> None:
    chip, size = chips.load(name), 8192
    matrix = Tensor.dense(dtype, size, size)
    seconds = chip_rates.model(chip).cost(Op("mm", (matrix, matrix), (matrix,))).seconds
    assert 0.3 < 2.0 * size**3 / seconds / chip_rates.roofline(chip, dtype)[0] <= 1.0


def test_architectures_of_other_vendors_have_no_limit_of_nvidias() -> None:
    other = dataclasses.replace(chips.load("h200"), product_name="AMD Instinct MI250X")
    limited = dataclasses.replace(other, power_max_watts=300.0)
    assert sustained_share(limited, "float16") == 1.0


def test_figures_of_power_that_leave_nothing_say_nothing() -> None:
    chip = dataclasses.replace(chips.load("l4"), power_idle_watts=72.0)
    assert sustained_share(chip, "float32") == 1.0
