"""What collectives take over links, beside NCCL's own times."""

from __future__ import annotations

import statistics

import pytest

from torch_loom import chips
from torch_loom.chips.collectives import collective_seconds
from torch_loom.chips.fit_collectives import fit_fabrics, forecast, routed

# nccl-tests' all_reduce of float32, out of place: ranks, bytes, milliseconds.
# https://github.com/VIA-Research/vTrain, trace/ (MIT), eight A100 behind switches and eight V100 of a mesh.
A100 = [
    *((2, 4194304, 0.061), (2, 16777216, 0.132), (2, 486539264, 2.568), (4, 4194304, 0.077)),
    *((4, 16777216, 0.180), (4, 218103808, 1.589), (8, 4194304, 0.096), (8, 16777216, 0.232)),
    *((8, 218103808, 1.782), (8, 1023410176, 7.824)),
]
V100 = [
    *((2, 4194304, 0.209), (2, 486539264, 21.587), (3, 218103808, 6.460), (4, 16777216, 0.324)),
    *((5, 486539264, 21.011), (6, 218103808, 7.973), (8, 16777216, 0.274), (8, 1023410176, 13.348)),
]


def errors(name: str, measured: list[tuple[int, int, float]]) -> list[float]:
    chip = chips.load(name)
    return [
        abs(collective_seconds(chip, "all_reduce", size_bytes, ranks) * 1e3 / ms - 1)
        for ranks, size_bytes, ms in measured
    ]


@pytest.mark.parametrize(("name", "measured"), [("a100", A100), ("v100", V100)])
def test_all_reduce_takes_what_was_measured(name: str, measured: list[tuple[int, int, float]]) -> None:
    found = errors(name, measured)
    assert statistics.mean(found) < 0.07, found
    assert max(found) < 0.25, found


@pytest.mark.parametrize("name", ["h200", "a100", "v100", "t4", "loom1", "wormhole_b0"])
def test_more_bytes_and_more_ranks_take_longer(name: str) -> None:
    chip = chips.load(name)
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send"):
        times = [collective_seconds(chip, kind, 1 << size, 2) for size in range(4, 32, 2)]
        assert times == sorted(times), kind
        assert times[0] > 0, kind
    if not chip.ring_links:
        by_ranks = [collective_seconds(chip, "all_reduce", 1 << 28, ranks) for ranks in range(2, 9)]
        assert by_ranks == sorted(by_ranks)


def test_the_parts_of_a_collective() -> None:
    chip = chips.load("h200")
    reduced, gathered = (collective_seconds(chip, kind, 1 << 30, 8) for kind in ("all_reduce", "all_gather"))
    assert reduced == pytest.approx(2 * gathered, rel=0.1)
    assert collective_seconds(chip, "all_reduce", 1 << 30, 1) == 0.0
    assert collective_seconds(chip, "all_reduce", 0, 8) == 0.0
    assert collective_seconds(chip, "barrier", 0, 8) > 0.0


def test_links_without_a_switch_are_used_as_far_as_they_reach() -> None:
    bridged = chips.load("a40")
    two, four = (collective_seconds(bridged, "all_gather", 1 << 28, ranks) for ranks in (2, 4))
    assert four > 3 * two


def test_a_shipped_protocol_that_rows_contradict_is_not_kept() -> None:
    chip = chips.load("a100")
    timings = [
        {
            "op": "all_reduce",
            "shape": [ranks, 1 << size],
            "ms": collective_seconds(chip, "all_reduce", 1 << size, ranks) * 5e3,
        }
        for ranks in (2, 4, 8)
        for size in range(4, 15)
    ]
    rows = routed(timings, "slow", chip)
    found = forecast(fit_fabrics(rows)["switched"].protocols, rows)
    errors = [abs(took / row.took_ns - 1) for took, row in zip(found.tolist(), rows, strict=True)]
    assert statistics.mean(errors) < 0.05
