"""What options of the compiler can be chosen from."""

from __future__ import annotations

from typing import NamedTuple

BALANCER_POLICIES = (
    *("default", "NLP", "Ribbon", "MinimizeGrid", "MaximizeTMinimizeGrid", "Random", "CNN"),
    "SingleOpPerEpoch",
)
DATA_FORMATS = (
    *("Float32", "Float16", "Float16_b", "Bfp8", "Bfp8_b", "Bfp4", "Bfp4_b", "Bfp2", "Bfp2_b", "Lf8"),
    *("Int32", "Int8", "UInt16"),
)
MATH_FIDELITIES = ("LoFi", "HiFi2", "HiFi3", "HiFi4")
TRACE_LEVELS = ("NONE", "LIGHT", "VERBOSE")
DRAM_PLACEMENT_ALGORITHMS = ("ROUND_ROBIN", "ROUND_ROBIN_FLIP_FLOP", "GREATEST_CAPACITY", "CLOSEST")
CHIP_PLACEMENT_POLICIES = ("MMIO_LAST", "SNAKE")
HARVESTABLE_ROWS = (*range(1, 6), *range(7, 12))


class Board(NamedTuple):
    """The chips of a board.

    Attributes:
        chip: the name of its description.
        num_chips: how many there are.
        short_name: what stands on the box, by which ``loom compile --chip`` takes it; empty: none.
        harvested_rows: that each of them lacks, from 0; None: those of the description.
    """

    chip: str
    num_chips: int
    short_name: str = ""
    harvested_rows: tuple[int, ...] | None = None


DEVICE_CONFIGS = {
    "gs_e150": Board("grayskull", 1, "e150"),
    "gs_e300": Board("grayskull", 2, "e300"),
    "wh_n150": Board("wormhole_b0", 1, "n150"),
    # docs.tenstorrent.com, n300: 128 cores on two chips of 8 x 10; which rows are fused off differs.
    "wh_n300": Board("wormhole_b0", 2, "n300", (8, 9)),
    "galaxy": Board("wormhole_b0", 32, "galaxy"),
    "bh_test": Board("blackhole", 1),
    "bh_p150": Board("blackhole", 1, "p150"),
}
"""Boards by name."""
