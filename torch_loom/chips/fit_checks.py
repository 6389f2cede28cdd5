"""Whether a sweep is of the card that a description describes, and in the units that it should be in."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from torch_loom.chips import rates as chip_rates
from torch_loom.chips.chip import Chip, available, load
from torch_loom.chips.cost.sweep import Case
from torch_loom.errors import ChipError

# By so much a row's time, or that of half of all rows, may differ from what the others or the chip say. Real
# sweeps differ up to 16-fold by row, and those of a K80 up to 40-fold from an H200's times.
MOST = 100.0
# Of a card's name, what does not say which card it is: the vendor's words.
_OTHER_WORDS = re.compile(r"nvidia|tesla|geforce|gpu|hbm\w*")
_MEMORY = re.compile(r"\d+gb")


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


def _is_same(one: set[str], other: set[str]) -> bool:
    # Cards that differ in their memory have other rates; not every name says how much it is.
    memories = [{word for word in words if _MEMORY.fullmatch(word)} for words in (one, other)]
    return one - memories[0] == other - memories[1] and (not all(memories) or memories[0] == memories[1])


def _words(name: str) -> set[str]:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return {word for word in words if not _OTHER_WORDS.fullmatch(word)}


def check_units(where: object, cases: Sequence[Case], chip: Chip) -> None:
    """Refuse times in another unit: of one row against its op's other rows, of all rows against the chip.

    Raises:
        ChipError: a row, or half of them, takes a hundred times as long as it should, or as short.
    """
    model = chip_rates.model(chip)
    ratios: dict[str, list[tuple[float, Case]]] = defaultdict(list)
    for case in cases:
        ratios[case.op].append((case.device_ns / model.total_ns(case.kernels), case))
    whole = median(ratio for each in ratios.values() for ratio, _ in each)
    if not 1.0 / MOST < whole < MOST:
        raise ChipError(
            f"{where}: half of the rows take {whole:,.3g} times what {chip.name!r} takes, or more. Allowed: "
            f"times in milliseconds, of such a card."
        )
    for op, rows in ratios.items():
        middle = median(ratio for ratio, _ in rows) if len(rows) > 2 else whole
        ratio, case = max(rows, key=lambda each: abs(math.log(each[0] / middle)))
        if not 1.0 / MOST < ratio / middle < MOST:
            raise ChipError(
                f"{where}: {case.name} takes {case.device_ns * 1e-6:g} ms, {ratio / middle:,.3g} times what "
                f"its neighbours say (of {op}: {len(rows)} rows). Allowed: times in milliseconds."
            )
