"""Whose curves stand for a chip that was not measured: those of chips like it by their data sheets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from torch_loom.chips.chip import Chip, load
from torch_loom.chips.cost.families import FAMILIES, FLOP_SHARES, GRADES, is_on_vector_units
from torch_loom.chips.power import is_issue_bound, sustained_share

# A card whose power lets it go on at less than this share of its peak is at its limit.
LIMITED = 0.9
# The bus of one stack of memory.
STACKED_BITS = 1024


def is_alike(first: Chip, second: Chip) -> bool:
    """Return whether two chips have the same cores, so that what one was measured at holds for the other.

    A chip that is no card of a vendor's has those of the chip that its description names.
    """
    is_card = bool(first.product_name and second.product_name)
    return not is_card or _capability(first) == _capability(second)


def line(chip: Chip) -> list[Chip]:
    """Return a chip, the one whose curves its description names, the one that this one names, and so on."""
    found = [chip]
    while found[-1].efficiency_of:
        found.append(load(found[-1].efficiency_of))
    return found


def nearest(chip: Chip, others: Iterable[Chip]) -> list[Chip]:
    """Return chips, those first that a chip is most like.

    Those of its generation come first, then those whose cores' matrix units do as much in a cycle, in powers
    of two.
    """

    def away(other: Chip) -> tuple[bool, int, float]:
        own, its = _matrix_rate(chip), _matrix_rate(other)
        factor = abs(round(math.log2(its / own))) if own and its else 0
        generations = abs(_capability(chip) - _capability(other))
        return chip.capability_major != other.capability_major, factor, generations

    return sorted(others, key=away)


def memory_share(chip: Chip, others: Iterable[Chip]) -> float:
    """Return the share of its peak that a chip's memory reaches, by that of chips with like memory; 0: none.

    Stacks on the package (a bus of 1024 bits or more) keep the bits of their codes beside the data. Boards
    for servers with chips of GDDR keep them in the same memory, and reach less; boards without codes do not.
    """
    shares = [
        each.dram_share for each in others if each.dram_share and _memory_kind(each) == _memory_kind(chip)
    ]
    return sum(shares) / len(shares) if shares else 0.0


def _memory_kind(chip: Chip) -> tuple[bool, bool]:
    is_stacked = chip.memory_bus_bits >= STACKED_BITS
    return is_stacked, not is_stacked and chip.product_name.startswith("NVIDIA GeForce")


def joined(chip: Chip, others: Sequence[Chip]) -> Mapping[str, Mapping[str, float]]:
    """Return the coefficients of a chip out of those of others, the nearest first, by family.

    Of what runs on vector units chips come first that have as many lanes for each instruction. A share of
    another chip's peak is taken to be no more than what makes the peak of this one.
    """
    found: dict[str, Mapping[str, float]] = {}
    for family in FAMILIES:
        tables = [(each, each.efficiency[family]) for each in others if family in each.efficiency]
        if is_on_vector_units(family):
            # Sorting keeps the order of equals.
            tables.sort(key=lambda pair: is_issue_bound(pair[0]) != is_issue_bound(chip))
        merged: dict[str, float] = {}
        for each, table in reversed(tables):
            merged.update(table if is_alike(each, chip) else _of_another(family, table, each, chip, merged))
        if merged:
            found[family] = merged
    return found


def _fetches(chip: Chip) -> bool:
    """Return whether matrix units fetch operands from shared memory themselves: Hopper's and those of a B200.

    Rows that are not aligned leave them to instructions of earlier chips, which reach a part of their rate.
    """
    return chip.capability_major in (9, 10)


def _capability(chip: Chip) -> float:
    return chip.capability_major + chip.capability_minor / 10.0


def _matrix_rate(chip: Chip) -> float:
    """Return operations of float16 that a core's matrix units do in a cycle; 0: it has none."""
    if chip.capability_major < 7 or not chip.num_cores or not chip.clock_mhz:
        return 0.0
    return chip.peak_tflops.get("float16", 0.0) * 1e6 / (chip.num_cores * chip.clock_mhz)


def _of_another(
    family: str, table: Mapping[str, float], other: Chip, chip: Chip, behind: Mapping[str, float]
) -> Mapping[str, float]:
    """Return what coefficients of another chip say of this one: shares stay below its peak.

    How much a card's cooling slows down long work at its power limit says nothing of cards that do not reach
    theirs: they slow down no more than the chips behind it, of which ``behind`` has the coefficients. What
    rows that are not aligned cost is a matter of how matrix units get them.
    """
    dtype = "float32" if is_on_vector_units(family) else "float16"
    share = sustained_share(chip, dtype)
    found = {name: min(value, 1.0 / share) if name in FLOP_SHARES else value for name, value in table.items()}
    if _fetches(other) != _fetches(chip):
        found = {name: value for name, value in found.items() if name not in GRADES}
    is_own = sustained_share(other, dtype) < LIMITED <= share
    if is_own and behind.get("derate", math.inf) < found.get("derate", 0.0):
        found.update({name: behind[name] for name in ("derate", "derate_ns") if name in behind})
    return found
