"""`loom chips`: which chips there are, what each is, whether a description is good, and how one is fitted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.table import Table
from rich.text import Text

from torch_loom import chips
from torch_loom.chips import rates as chip_rates
from torch_loom.chips.chip import figures, given
from torch_loom.chips.limits import beyond_limits
from torch_loom.errors import ChipError
from torch_loom.tools import console
from torch_loom.tools.chip_fit import fit
from torch_loom.tools.chip_list import list_chips
from torch_loom.tools.roofline import plot

__all__ = ["check", "fit", "list_chips", "show"]

MIB = 1 << 20
GIB = 1 << 30
HIDDEN = ("name", "description", "sources", "efficiency", "native_ops")


def _size(size_bytes: int) -> str:
    """Return a size with the largest unit that divides it."""
    for unit, step in (("GiB", GIB), ("MiB", MIB), ("KiB", 1 << 10)):
        if size_bytes >= step and size_bytes % step == 0:
            return f"{size_bytes // step} {unit}"
    return f"{size_bytes} bytes"


def _text(value: object, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and unit == "bytes":
        return _size(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {each:g}" for key, each in value.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(str(each) for each in value) or "none"
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{shown} {unit}".strip()


def show(name: str) -> None:
    """Print a chip: its figures with their sources, and its roofline."""
    chip, keys = _loaded(name), given(name)

    def source(key: str, otherwise: str = "default") -> Text:
        """Say where a figure is from: one that the file gives without a source is the file's own."""
        return Text(chip.sources.get(key, "this file" if key in keys else otherwise))

    console.out.print(Text(chip.name, style="bold").append(f"  {chip.description}", style="default"))
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("figure", no_wrap=True)
    table.add_column("value")
    table.add_column("source", style="dim")
    for key, entry in figures().items():
        value = getattr(chip, entry.name)
        if key in HIDDEN or (key not in keys and not value):
            continue
        table.add_row(key, Text(_text(value, entry.metadata["unit"])), source(key))
    native = "all" if chip.native_ops is None else f"{len(chip.native_ops)} of PyTorch's ops"
    table.add_row("native_ops", native, source("native_ops"))
    own = len(chip.efficiency)
    borrowed = f", the rest as {chip.efficiency_of}" if chip.efficiency_of else ""
    origin = f"the description of {chip.efficiency_of}" if chip.efficiency_of else "default"
    table.add_row("efficiency", f"{own} families of kernels{borrowed}", source("efficiency", origin))
    console.out.print(table)
    rates = chip_rates.rates(chip)
    peaks = chip.peak_tflops or {"float32 (guessed)": rates.flops_per_ns["float32"] / 1e3}
    console.out.print()
    for line in plot(peaks, rates.dram_bytes_per_ns):
        console.out.print(line, soft_wrap=True)


def _loaded(name: str) -> chips.Chip:
    try:
        return chips.load(name)
    except ChipError as error:
        console.fail(error)


def check(path: Path) -> None:
    """Read a description; say what is wrong with it, what no hardware can do, or what lacks a source."""
    chip_path = str(path) if path.suffix == ".toml" or path.parent != Path() else f"./{path}"
    chip = _loaded(chip_path)
    keys = given(chip_path) - {"name", "description", "sources", *chip.sources}
    if beyond := beyond_limits(chip):
        console.fail("\n".join(f"{path}: {line}." for line in beyond))
    missing = [key for key in figures() if key in keys]
    if missing:
        console.out.print(Text(f"without a source: {', '.join(missing)}", style="yellow"))
    console.out.print(Text(f"{path}: a description of {chip.name}, {_size(chip.memory_bytes)}"))
