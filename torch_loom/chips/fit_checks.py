"""Whether a sweep is of the card that a description describes, and in the units that it should be in."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import median_high, median_low
from typing import NamedTuple

from torch_loom.chips import rates as chip_rates
from torch_loom.chips import topologies
from torch_loom.chips.chip import Chip, available, load
from torch_loom.chips.cost.sweep import Case
from torch_loom.errors import ChipError

# By so much a row's time, or that of most rows, may differ from what the others or the chip say. Real
# sweeps differ up to 16-fold by row, and those of a K80 up to 40-fold from an H200's times.
MOST = 100.0
# Of a card's name, what does not say which card it is: the vendor's words.
_OTHER_WORDS = re.compile(r"nvidia|tesla|geforce|gpu|hbm\w*")
_MEMORY = re.compile(r"\d+gb")
# Of what a file calls several cards, what says how many there are and how they are joined.
_JOINED = re.compile(r"\b\d+ *x\b|\bx *\d+\b|\b(?:pairwise|nvlink|nvswitch)\b", re.IGNORECASE)


def check_card(where: object, device: str, chip: Chip) -> None:
    """Refuse a sweep of another card than the chip's; one that names no card may be of any.

    Args:
        where: the file, for the message.
        device: what the sweep calls its card.

    Raises:
        ChipError: it is of another one.
    """
    if not device or not chip.product_name or _is_of(device, chip):
        return
    others = [name for name in available() if _is_of(device, load(name))]
    chosen = f"the chip {others[0]!r}" if others else f"a description whose product_name is {device!r}"
    raise ChipError(
        f"{where}: timed on {device!r:.100}, where {chip.name!r} describes {chip.product_name!r}. "
        f"Allowed: {chosen} as the base."
    )


def _is_of(device: str, chip: Chip) -> bool:
    return any(_is_same(_words(device), _words(name)) for name in (chip.product_name, chip.name))


def _is_same(each: set[str], other: set[str]) -> bool:
    # Cards that differ in their memory have other rates; not every name says how much it is.
    memories = [{word for word in words if _MEMORY.fullmatch(word)} for words in (each, other)]
    return each - memories[0] == other - memories[1] and (not all(memories) or memories[0] == memories[1])


def _words(name: str) -> set[str]:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return {word for word in words if not _OTHER_WORDS.fullmatch(word)}


def check_cards(where: object, device: str, chip: Chip, topology: str = "") -> None:
    """Refuse timings of several cards that are not the chip's; a file that names no card may be of any.

    Args:
        device: what the file says: '8 x A100-SXM4-80GB (DGX, NVSwitch)'.
        topology: the name of the topology that the chip is from.

    Raises:
        ChipError: they are other cards.
    """
    card = card_of(device)
    if not card or (chip.product_name and _is_of(card, chip)):
        return
    others = [name for name in available() if load(name).product_name and _is_of(card, load(name))]
    clusters = [name for name in topologies.available() if topologies.load(name).chip in others]
    base = f"the topology {topology!r} is of {chip.name!r}," if topology else f"{chip.name!r} is"
    is_what = f"{chip.product_name!r}" if chip.product_name else "a chip whose collectives nobody timed"
    chosen = f"{', '.join(map(repr, [*others, *clusters]))} as the base" if others else "a shipped card"
    raise ChipError(f"{where}: timed on {device!r:.100}, where {base} {is_what}. Allowed: {chosen}.")


def card_of(device: str) -> str:
    """Return what a file calls each of its cards, without how many there are and how they are joined."""
    return " ".join(_JOINED.sub(" ", re.sub(r"\([^)]*\)", " ", device)).split())


class Timed(NamedTuple):
    """A row whose unit is checked: the rows that it is compared with, its name, and two times.

    ``expected_ns`` is what a chip's model says; only how the ratios of rows differ counts, not it alone.
    """

    group: str
    name: str
    took_ns: float
    expected_ns: float


def check_units(where: object, cases: Sequence[Case], chip: Chip) -> None:
    """Refuse times of a sweep in another unit, as :func:`check_times` does, beside a chip's own times."""
    model = chip_rates.model(chip)
    rows = [Timed(case.op, case.name, case.device_ns, model.total_ns(case.kernels)) for case in cases]
    check_times(where, rows, repr(chip.name))


def check_times(where: object, rows: Sequence[Timed], reference: str) -> None:
    """Refuse rows in another unit: a hundred times as long, or as short, as their neighbours say.

    A row is compared with the middle of its group, a group with the middle of all, and all rows with what is
    expected of them. Of two rows that differ so the one further from its expectation is named.

    Args:
        where: the file, for the message.
        reference: whose times are expected, for the message.

    Raises:
        ChipError: the first finding: which row or rows, by how much, and how many there are.
    """
    groups: dict[str, list[tuple[float, Timed]]] = defaultdict(list)
    for row in rows:
        groups[row.group].append((math.log(row.took_ns / row.expected_ns), row))
    whole = _middle([ratio for each in groups.values() for ratio, _ in each])
    if _is_off(whole):
        count = sum(_is_off(ratio) for each in groups.values() for ratio, _ in each)
        of = f"{count} of {len(rows)} rows take" if len(rows) > 1 else f"{rows[0].name}, the only row, takes"
        raise ChipError(
            f"{where}: {of} about {math.exp(whole):,.3g} times what {reference} takes. Allowed: times in "
            f"milliseconds, of such a card."
        )
    for name, members in groups.items():
        middle = _middle([ratio for ratio, _ in members]) if len(members) > 2 else whole
        if _is_off(middle - whole):
            raise ChipError(
                f"{where}: {name}: its {len(members)} rows take about {math.exp(middle - whole):,.3g} times "
                f"what the {len(rows)} rows of the file say. Allowed: times in milliseconds."
            )
        off = [(ratio - middle, row) for ratio, row in members if _is_off(ratio - middle)]
        if off:
            ratio, row = max(off, key=lambda each: abs(each[0]))
            others = f", and {len(off) - 1} more of them do the like" if len(off) > 1 else ""
            told = f"the {len(members)} rows of {name}" if len(members) > 2 else f"the {len(rows)} rows"
            raise ChipError(
                f"{where}: {row.name} takes {row.took_ns * 1e-6:g} ms, {math.exp(ratio):,.3g} times what its "
                f"neighbours say ({told}{others}). Allowed: times in milliseconds."
            )


def _is_off(log_ratio: float) -> bool:
    return abs(log_ratio) >= math.log(MOST)


def _middle(log_ratios: Sequence[float]) -> float:
    """Return the median; of two in the middle that differ much, the one nearer to what is expected."""
    low, high = median_low(log_ratios), median_high(log_ratios)
    return min(low, high, key=abs) if _is_off(high - low) else (low + high) / 2
