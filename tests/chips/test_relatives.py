"""Whose curves stand for a chip: by what its data sheet says, whatever the chip."""

from __future__ import annotations

import dataclasses

import pytest

from torch_loom import chips
from torch_loom.chips import rates as chip_rates
from torch_loom.chips import relatives
from torch_loom.chips.cost.families import FAMILIES, GRADES

MEASURED = [chips.load(name) for name in ("a100", "a40", "h200", "rtx3090", "t4", "v100")]


@pytest.mark.parametrize(
    ("name", "relative"),
    [
        ("p4", "v100"),
        ("p100", "v100"),
        ("a10", "a40"),
        ("l4", "a40"),
        ("l40s", "a40"),
        ("rtx4090", "rtx3090"),
        ("rtx5090", "rtx3090"),
        ("h100", "h200"),
        ("b200", "h200"),
    ],
)
def test_descriptions_name_the_nearest_chip(name: str, relative: str) -> None:
    chip = chips.load(name)
    assert chip.efficiency_of == relative
    assert relatives.nearest(chip, MEASURED)[0].name == relative


def test_vector_units_are_compared_with_like_ones() -> None:
    # An A40's line is A100, H200: both have curves of float32 products, the H200 cores like its own.
    a40, h200 = chips.load("a40"), chips.load("h200")
    assert (
        chip_rates.efficiency(a40)["matmul_vector"]["edge_cycles"]
        == (h200.efficiency["matmul_vector"]["edge_cycles"])
    )


def test_shares_of_others_stay_below_the_peak() -> None:
    fast = dataclasses.replace(
        chips.load("rtx3090"), efficiency={"matmul": {"flop_share": 1.1, "derate": 0.01}}
    )
    other = chips.load("rtx4090")
    assert relatives.joined(other, [fast])["matmul"]["flop_share"] == 1.0
    assert relatives.joined(chips.load("rtx3090"), [fast])["matmul"]["flop_share"] == 1.1


def test_cooling_is_a_card_s_own() -> None:
    t4 = dataclasses.replace(
        chips.load("t4"), efficiency={"matmul_vector": {"derate": 0.5, "derate_ns": 1e6}}
    )
    a100 = dataclasses.replace(
        chips.load("a100"), efficiency={"matmul_vector": {"derate": 0.1, "derate_ns": 2e6}}
    )
    of_v100 = relatives.joined(chips.load("v100"), [t4, a100])["matmul_vector"]
    assert (of_v100["derate"], of_v100["derate_ns"]) == (0.1, 2e6)
    assert relatives.joined(chips.load("t4"), [t4, a100])["matmul_vector"]["derate"] == 0.5


def test_memory_of_servers_is_compared_with_such() -> None:
    found = {name: relatives.memory_share(chips.load(name), MEASURED) for name in ("l4", "p100")}
    assert found["l4"] == pytest.approx(0.8, abs=0.02)
    assert found["p100"] == pytest.approx(0.92, abs=0.02)


@pytest.mark.parametrize("name", chips.available())
def test_no_worse_alignment_is_faster(name: str) -> None:
    for family, table in chip_rates.efficiency(chips.load(name)).items():
        grades = [{**FAMILIES[family].defaults, **table}[grade] for grade in GRADES if grade in table]
        assert grades == sorted(grades), family
