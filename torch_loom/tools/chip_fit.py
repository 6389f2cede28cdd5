"""`loom chips fit`: a chip's efficiency, or the protocols of collectives, fitted to timings."""

from __future__ import annotations

import csv
import dataclasses
import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from torch_loom import chips
from torch_loom.chips import fit_checks
from torch_loom.chips import rates as chip_rates
from torch_loom.chips.cost import calibration, sweep
from torch_loom.chips.cost.calibration import CHOICES
from torch_loom.chips.cost.families import FAMILIES
from torch_loom.chips.cost.fit import HELD, RATES, predicted
from torch_loom.chips.cost.fit_report import SweepFit, Told, fit_sweep, held_out
from torch_loom.chips.fitted import described
from torch_loom.chips.writer import to_toml
from torch_loom.config.files import whole_file
from torch_loom.errors import ChipError
from torch_loom.tools import console
from torch_loom.tools.chip_fit_collectives import fit_protocols

SUFFIXES = (".json", ".csv")
"""Of residual reports."""
# The keys of a description that a fit measures as rates.
RATE_KEYS = {
    "dram_bytes_per_ns": "dram_share",
    "cache_bytes_per_ns": "l2_gbps",
    "cache_full_share": "l2_full_share",
    "cache_none_share": "l2_none_share",
    "cache_write_cost": "l2_write_cost",
}
MAX_SOURCE_CHARS, COMMENT_CHARS = 400, 108
FITTED, A_COLLECTIVE, UNTOLD = (
    "fitted",
    "left out: a collective",
    "left out: its timings tell no coefficient",
)


class Residual(NamedTuple):
    """A row of a residual report: what was timed, in milliseconds, and what the fit makes of it.

    Attributes:
        row: its number in the file.
        held_out_ms: forecast of a fit that did not see it; None: there were too few rows to leave any out.
        use: ``fitted``, or why it was left out.
    """

    row: int
    op: str
    shape: tuple[int, ...]
    dtype: str
    measured_ms: float
    forecast_ms: float | None
    error: float | None
    held_out_ms: float | None
    held_out_error: float | None
    use: str


def fit(sweep_path: Path, base: str, out: Path, name: str | None, report: Path | None = None) -> None:
    """Fit a chip's efficiency to a sweep, print what it is told by and how far off it is, write it.

    A file of collectives alone is fitted as :func:`fit_protocols` says.

    Args:
        base: the chip whose figures stay where the timings tell nothing.
        report: where to write the residuals: JSON or CSV, by its suffix.
    """
    console.check_folders(out, report)
    if report is not None and report.suffix not in SUFFIXES:
        console.fail(
            f"--report {report}: no report has the suffix {report.suffix!r}. Allowed: a name that ends in "
            f"{' or '.join(SUFFIXES)}.",
            2,
        )
    try:
        everything = sweep.read(sweep_path)
        device = sweep.device_of(sweep_path)
        if not any(case.kernels for case in everything):
            rows = fit_protocols(sweep_path, device, base, out, name)
        else:
            rows = _fit_chip(sweep_path, device, everything, base, out, name)
    except ChipError as error:
        console.fail(error)
    except OSError as error:
        console.fail(f"{out}: cannot be written: {error}")
    console.out.print(f"wrote {out}", soft_wrap=True)
    if report is not None:
        try:
            write_report(report, rows)
        except OSError as error:
            console.fail(f"{report}: cannot be written: {error}")
        console.out.print(f"wrote {report}", soft_wrap=True)


def _fit_chip(
    path: Path, device: str, everything: Sequence[sweep.Case], base: str, out: Path, name: str | None
) -> list[dict[str, Any]]:
    """Fit and write a chip; return the residuals."""
    chip = chips.load(base)
    cases = [case for case in everything if case.kernels]
    fit_checks.check_card(path, device, chip)
    fit_checks.check_units(path, cases, chip)
    rates, start = chip_rates.rates(chip), chip_rates.efficiency(chip)
    peak = rates.dram_bytes_per_ns / (chip.dram_share or chip_rates.GUESSED_DRAM_SHARE)
    measured, groups = calibration.timings(cases), [case.op for case in cases]
    held: NDArray[np.float64] | None = None
    if len(cases) >= calibration.PARTS:
        held = held_out(measured, groups, calibration.PARTS, rates, start, peak)
        took = np.array([case.device_ns for case in cases])
        console.out.print(_errors(groups, np.abs(held / took - 1.0)))
        console.out.print()
    found = fit_sweep(measured, rates, start, peak)
    console.out.print(told_table(found.told, chip.name))
    others = len(FAMILIES) - (len(found.told) - 1)
    console.out.print(Text(f"{others} other families were not timed: kept from {chip.name}.", style="dim"))
    left_out = len(everything) - len(cases)
    if left_out:
        text = f"{left_out} rows of collectives are left out: a file of these alone is fitted to them."
        console.out.print(Text(text, style="yellow"), soft_wrap=True)
    result = _description(chip, found, len(cases))
    if name is not None:
        result = dataclasses.replace(result, name=name)
    comment = "\n".join(
        [f"{result.description}. loom chips fit: {len(cases)} timings.", *_lines(found, chip.name)]
    )
    with whole_file(out) as unfinished:
        unfinished.write_text(to_toml(result, comment), encoding="utf-8")
    forecast = predicted(measured, found.found.rates, {**start, **found.found.coefficients})
    return [each._asdict() for each in _residuals(everything, forecast, held, found)]


def _description(chip: chips.Chip, found: SweepFit, timings: int) -> chips.Chip:
    """Return the fitted chip; figures that nothing tells keep the base's value and source."""
    result = described(chip, found.found, f"loom chips fit: {timings} timings")
    kept: dict[str, Any] = {}
    sources = {**chip.sources}
    for rate, key in RATE_KEYS.items():
        count = found.told[RATES].by[rate]
        if count:
            sources[key] = f"loom chips fit: told by {count} of {timings} timings"
        else:
            kept[key] = getattr(chip, key)
    if kept.get("l2_none_share", 1.0) < kept.get("l2_full_share", result.l2_full_share):
        del kept["l2_none_share"]  # no cache keeps less of what it holds
    if not found.found.coefficients:
        return dataclasses.replace(
            result, efficiency=chip.efficiency, sources=MappingProxyType(sources), **kept
        )
    parts = []
    for family in sorted(found.found.coefficients):
        names = _counted(family, found.told[family])
        told = sum(count > 0 for count in names.values())
        parts.append(f"{family} {told} of {len(names)}")
    head = f"loom chips fit: {timings} timings; coefficients told, the others as {chip.name}: "
    text = head + ", ".join(parts)
    if len(text) > MAX_SOURCE_CHARS:
        text = text[: MAX_SOURCE_CHARS - 1].rpartition(",")[0] + ", …"
    sources["efficiency"] = text
    return dataclasses.replace(result, sources=MappingProxyType(sources), **kept)


def _counted(family: str, told: Told) -> dict[str, int]:
    """Return the coefficients that a fit can move, and how many timings tell each."""
    fixed = {each for each in HELD if CHOICES.get(family, ("",))[0] != each}
    return {name: count for name, count in told.by.items() if name not in fixed}


def _lines(found: SweepFit, base: str) -> list[str]:
    """Return a line for each family that was timed: what tells each coefficient."""
    lines = []
    for family, told in _in_order(found.told):
        names = _counted(family, told)
        by = ", ".join(f"{name} {count}" for name, count in names.items() if count)
        kept = ", ".join(name for name, count in names.items() if not count)
        parts = [f"told by so many of {told.timings} timings: {by}"] if by else []
        parts += [f"not told by the data, kept from {base}: {kept}"] if kept else []
        lines.append(f"{family}: {'; '.join(parts)}.")
    others = [family for family in FAMILIES if family not in found.told]
    lines.append(f"Not timed, kept from {base}: {', '.join(others)}.")
    return [part for line in lines for part in textwrap.wrap(line, COMMENT_CHARS, subsequent_indent="  ")]


def _in_order(told: Mapping[str, Told]) -> list[tuple[str, Told]]:
    return [(family, told[family]) for family in (RATES, *FAMILIES) if family in told]


def told_table(told: Mapping[str, Told], base: str) -> Table:
    """Return the table of what tells each coefficient: how many timings, or that it is kept from the base."""
    table = Table(box=None, pad_edge=False)
    table.add_column("family", no_wrap=True)
    table.add_column("timings", justify="right")
    table.add_column("coefficients, each told by so many")
    table.add_column(f"not told by the data: kept from {base}", style="dim")
    for family, each in _in_order(told):
        names = _counted(family, each)
        by = ", ".join(f"{name} {count}" for name, count in names.items() if count)
        kept = ", ".join(name for name, count in names.items() if not count)
        table.add_row(family, str(each.timings), by or "none", kept)
    return table


def _residuals(
    everything: Sequence[sweep.Case],
    forecast: NDArray[np.float64],
    held: NDArray[np.float64] | None,
    found: SweepFit,
) -> list[Residual]:
    rows, place = [], 0
    for number, case in enumerate(everything):
        said, unseen, use = None, None, A_COLLECTIVE
        if case.kernels:
            families = {kernel.family for kernel in case.kernels}
            use = FITTED if families & set(found.found.coefficients) else UNTOLD
            said = float(forecast[place])
            unseen = None if held is None else float(held[place])
            place += 1
        errors = [None if each is None else each / case.device_ns - 1.0 for each in (said, unseen)]
        in_ms = [None if each is None else each * 1e-6 for each in (said, unseen)]
        what = number, case.op, case.shape, case.dtype, case.device_ns * 1e-6
        rows.append(Residual(*what, in_ms[0], errors[0], in_ms[1], errors[1], use))
    return rows


def write_report(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write residuals as JSON or CSV, by the suffix; the file is whole or not there.

    Raises:
        OSError: it cannot be written.
    """
    with whole_file(path) as unfinished:
        if path.suffix == ".json":
            text = ",\n".join(json.dumps(dict(row)) for row in rows)
            unfinished.write_text(f'{{"rows": [\n{text}\n]}}\n', encoding="utf-8")
            return
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            for row in rows:
                shape = "x".join(map(str, row["shape"]))
                writer.writerow({**row, "shape": shape})


def _errors(groups: list[str], errors: NDArray[np.float64]) -> Table:
    """Return the table of held-out errors by op."""
    table = Table(box=None, pad_edge=False)
    for heading in ("op", "timings", "held-out error", "worst"):
        table.add_column(heading, justify="left" if heading == "op" else "right")
    for group in dict.fromkeys(groups):
        mine = errors[[index for index, each in enumerate(groups) if each == group]]
        table.add_row(group, str(len(mine)), f"{mine.mean():.1%}", f"{mine.max():.1%}")
    table.add_row(Text("all", style="bold"), str(len(errors)), f"{errors.mean():.1%}", f"{errors.max():.1%}")
    return table
