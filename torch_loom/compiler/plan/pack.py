"""Puts rectangles of cores on a grid."""

from __future__ import annotations

from collections.abc import Sequence

Place = tuple[int, int, bool]


def pack(
    grids: Sequence[tuple[int, int]],
    rows: int,
    columns: int,
    *,
    may_turn: bool = True,
    fixed: Sequence[tuple[int, int] | None] = (),
) -> list[Place] | None:
    """Return a place for each rectangle: row, column, and whether it was turned. None: they do not fit.

    The largest go first, each to the first free place by columns of cores.

    Args:
        grids: rows and columns of each.
        may_turn: a rectangle may be turned where it does not fit as it is.
        fixed: the place of each that must be at one.
    """
    if sum(height * width for height, width in grids) > rows * columns:
        return None
    taken = [0] * rows  # bits of columns
    places: list[Place | None] = [None] * len(grids)
    order = sorted(range(len(grids)), key=lambda i: (-grids[i][0] * grids[i][1], -grids[i][0], i))
    given = dict(enumerate(fixed))
    order.sort(key=lambda i: given.get(i) is None)
    for i in order:
        height, width = grids[i]
        place = given.get(i)
        if place is not None:
            if not _is_free(taken, place[0], place[1], height, width, rows, columns):
                return None
            places[i] = (place[0], place[1], False)
        else:
            found = _first(taken, height, width, rows, columns)
            turned = False
            if found is None and may_turn and height != width:
                height, width, turned = width, height, True
                found = _first(taken, height, width, rows, columns)
            if found is None:
                return None
            places[i] = (*found, turned)
        row, column, _ = places[i]  # type: ignore[misc]
        for each in range(row, row + height):
            taken[each] |= ((1 << width) - 1) << column
    return [place for place in places if place is not None]


def _is_free(
    taken: Sequence[int], row: int, column: int, height: int, width: int, rows: int, columns: int
) -> bool:
    if row < 0 or column < 0 or row + height > rows or column + width > columns:
        return False
    mask = ((1 << width) - 1) << column
    return all(not taken[each] & mask for each in range(row, row + height))


def _first(taken: Sequence[int], height: int, width: int, rows: int, columns: int) -> tuple[int, int] | None:
    for row in range(rows - height + 1):
        union = 0
        for each in range(row, row + height):
            union |= taken[each]
        mask = (1 << width) - 1
        for column in range(columns - width + 1):
            if not union & (mask << column):
                return row, column
    return None
