"""What fits refuse: rows in another unit, however few there are, and other cards than the base's."""

from __future__ import annotations

import pytest

from torch_loom import chips
from torch_loom.chips.fit_checks import Timed, card_of, check_cards, check_times
from torch_loom.errors import ChipError


def rows(**ratios: list[float]) -> list[Timed]:
    """Return rows of each op, so many times as long as is expected of them."""
    return [
        Timed(op, f"{op} {number}", 1e6 * ratio, 1e6)
        for op, each in ratios.items()
        for number, ratio in enumerate(each)
    ]


def complaint(checked: list[Timed]) -> str:
    with pytest.raises(ChipError) as raised:
        check_times("sweep.json", checked, "'t4'")
    message = str(raised.value)
    assert message.startswith("sweep.json: ")
    assert message.endswith(
        ("Allowed: times in milliseconds.", "Allowed: times in milliseconds, of such a card.")
    )
    return message


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ([1.0, 1000.0], "add 1 takes 1000 ms, 1e+03 times what its neighbours say (the 2 rows)"),
        ([1000.0, 1.0], "add 0 takes 1000 ms, 1e+03 times"),
        ([1.2, 1e-3], "add 1 takes 0.001 ms, 0.000833 times"),
        ([1.0, 1.0, 1000.0], "add 2 takes 1000 ms, 1e+03 times what its neighbours say (the 3 rows of add)"),
        ([1.0, 2.0, 1000.0, 1000.0], "(the 4 rows of add, and 1 more of them do the like)"),
        ([1000.0], "add 0, the only row, takes about 1e+03 times what 't4' takes"),
        ([1000.0, 2000.0], "2 of 2 rows take about 1.41e+03 times what 't4' takes"),
        ([1.0, 1000.0, 1000.0], "2 of 3 rows take about 1e+03 times"),
    ],
)
def test_few_rows(ratios: list[float], said: str) -> None:
    assert said in complaint(rows(add=ratios))


def test_an_op_whose_rows_are_all_in_another_unit() -> None:
    found = complaint(rows(add=[1.0] * 5, mm=[1000.0] * 4))
    assert "mm: its 4 rows take about 1e+03 times what the 9 rows of the file say" in found


def test_two_rows_of_an_op_stand_beside_all_others() -> None:
    assert "mm 1 takes 1000 ms" in complaint(rows(add=[1.0] * 5, mm=[1.0, 1000.0]))


@pytest.mark.parametrize(
    "ratios", [[1.0], [40.0], [0.02, 40.0 / 50], [1.0, 16.0, 0.1], [30.0, 2.0, 50.0, 9.0]]
)
def test_what_real_sweeps_have(ratios: list[float]) -> None:
    check_times("sweep.json", rows(add=ratios), "'t4'")


@pytest.mark.parametrize(
    ("device", "card"),
    [
        ("8 x A100-SXM4-80GB (DGX, NVSwitch)", "A100-SXM4-80GB"),
        ("A100 pairwise NVLink", "A100"),
        ("v100 x 8 (NVLink)", "v100"),
        ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("", ""),
    ],
)
def test_the_card_of_several(device: str, card: str) -> None:
    assert card_of(device) == card


@pytest.mark.parametrize(
    "device", ["", "8 x A100-SXM4-80GB (DGX, NVSwitch)", "A100 pairwise NVLink", "a100 x 8 (NVSwitch)"]
)
def test_cards_that_are_the_chips(device: str) -> None:
    check_cards("x.json", device, chips.load("a100"))


def test_cards_that_are_others() -> None:
    with pytest.raises(ChipError) as raised:
        check_cards("x.json", "8 x A100-SXM4-80GB (DGX, NVSwitch)", chips.load("h100"), "dgx-h100")
    assert str(raised.value) == (
        "x.json: timed on '8 x A100-SXM4-80GB (DGX, NVSwitch)', where the topology 'dgx-h100' is of 'h100', "
        "'NVIDIA H100 80GB HBM3'. Allowed: 'a100', 'a100-ethernet', 'dgx-a100' as the base."
    )
    with pytest.raises(
        ChipError, match=r"where 'loom1' is a chip whose collectives nobody timed\. Allowed: 'v100'"
    ):
        check_cards("x.json", "v100 x 8 (NVLink)", chips.load("loom1"))
    with pytest.raises(ChipError, match=r"Allowed: a shipped card\."):
        check_cards("x.json", "B300 x 8", chips.load("h100"))
