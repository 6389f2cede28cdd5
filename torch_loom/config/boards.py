"""Boards: which chips are on them. A board is no chip, and errors say which chip to take."""

from __future__ import annotations

from typing import NamedTuple


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

_BY_NAME = {name: full for full, board in DEVICE_CONFIGS.items() for name in (full, board.short_name) if name}


def board_name(text: str) -> str | None:
    """Return the name of the board that a text means, in full or as on the box, in any case; None: none."""
    return _BY_NAME.get(text.lower())


def chips_of_board(text: str) -> str:
    """Return, for an error, which chips a board has; empty if the text means none."""
    name = board_name(text)
    if name is None:
        return ""
    board = DEVICE_CONFIGS[name]
    count = "1 chip" if board.num_chips == 1 else f"{board.num_chips} chips"
    return (
        f"{text!r} is a board with {count} of {board.chip}: take the chip {board.chip!r}, and "
        f"TORCH_LOOM_DEVICES={board.num_chips} for the whole board"
    )
