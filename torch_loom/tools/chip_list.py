"""`loom chips list`: the shipped chips by vendor and architecture."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from torch_loom import chips
from torch_loom.tools import console

GIB = 1 << 30
VENDORS = ("NVIDIA", "AMD", "Tenstorrent", "Rebellions")
"""As descriptions begin with them, in the order of the list; a chip of none of them is a virtual one."""
VIRTUAL = "virtual"
# The first of each architecture by its capability, oldest first.
ARCHITECTURES: Mapping[str, tuple[tuple[tuple[int, int], str], ...]] = {
    "NVIDIA": (
        ((3, 0), "Kepler"),
        ((5, 0), "Maxwell"),
        ((6, 0), "Pascal"),
        ((7, 0), "Volta"),
        ((7, 5), "Turing"),
        ((8, 0), "Ampere"),
        ((8, 9), "Ada"),
        ((9, 0), "Hopper"),
        ((10, 0), "Blackwell"),
    ),
    "AMD": (((9, 0), "CDNA"), ((10, 0), "RDNA")),
}
# Oldest first: the vendor has no number that says so.
GENERATIONS = ("grayskull", "wormhole", "blackhole")
_SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def vendor_of(chip: chips.Chip) -> str:
    """Return who makes a chip: by the first word of its description."""
    first = chip.description.split()[0]
    return first if first in VENDORS else VIRTUAL


def group_of(chip: chips.Chip) -> str:
    """Return the vendor and, where it has several, the architecture: 'NVIDIA Ampere', 'Tenstorrent'."""
    vendor = vendor_of(chip)
    number = chip.capability_major, chip.capability_minor
    names = [name for first, name in ARCHITECTURES.get(vendor, ()) if first <= number]
    return f"{vendor} {names[-1]}" if names else vendor


def grouped() -> dict[str, list[chips.Chip]]:
    """Return the shipped chips by group: vendors in the order of VENDORS, of each the newest last."""
    groups: dict[str, list[chips.Chip]] = {}
    for chip in sorted(map(chips.load, chips.available()), key=_place):
        groups.setdefault(group_of(chip), []).append(chip)
    return groups


def _place(chip: chips.Chip) -> tuple[int, int, int, int, str]:
    vendor = vendor_of(chip)
    generation = [place for place, name in enumerate(GENERATIONS) if chip.name.startswith(name)]
    place = VENDORS.index(vendor) if vendor in VENDORS else len(VENDORS)
    return place, chip.capability_major, chip.capability_minor, generation[0] if generation else 0, chip.name


def _peak(chip: chips.Chip) -> str:
    for name, short in _SHORT.items():
        if name in chip.peak_tflops:
            return f"{chip.peak_tflops[name]:g} {short}"
    return "?"


def _words(chip: chips.Chip) -> str:
    """Return the description without what its group says, and without what follows a colon."""
    return chip.description.removeprefix(f"{vendor_of(chip)} ").partition(":")[0]


def list_chips() -> None:
    """Print the table of shipped chips; '?' is what a description does not say."""
    table = Table(box=None, pad_edge=False)
    for heading in ("chip", "memory", "GB/s", "cores", "TFLOP/s", ""):
        right = heading in ("memory", "GB/s", "cores")
        table.add_column(heading, no_wrap=heading != "", justify="right" if right else "left")
    for group, members in grouped().items():
        table.add_row(Text(group, style="bold"))
        for chip in members:
            gbps = f"{chip.dram_gbps:g}" if chip.dram_gbps else "?"
            figures = (f"{chip.memory_bytes / GIB:.1f} GiB", gbps, str(chip.num_cores or "?"), _peak(chip))
            table.add_row(f"  {chip.name}", *figures, _words(chip))
    console.out.print(table)
