"""Fits the chips of an architecture to the measurements of its cards, and writes their descriptions.

    python -m benchmarks.fit_chips FOLDER [--all] [--only v100] [--out torch_loom/chips]

Read are the sweeps that ``python -m benchmarks.clock_error FOLDER`` reads. Curves are an architecture's: one
chip has them, the others name it (``efficiency_of``), each with the memory rates that its own timings
show. Fitted is the half of each source that ``sweep.is_fitted`` says; the report is of both.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from benchmarks import clock_truth, timm_steps
from benchmarks._common import plain_parser
from torch_loom import chips
from torch_loom.chips import rates as chip_rates
from torch_loom.chips import relatives
from torch_loom.chips.cost import calibration, sweep
from torch_loom.chips.cost.families import FAMILIES, GRADES
from torch_loom.chips.cost.fit import Timing, fit, free_coefficients, identified, predicted
from torch_loom.chips.cost.formulas import Rates
from torch_loom.chips.fitted import described, rounded
from torch_loom.chips.writer import to_toml

COMMAND = "python -m benchmarks.fit_chips"
STARTS = 12


# A step's one time counts as a few of ops; coefficients that steps do not tell stay close to where they are.
STEP_WEIGHT, STEP_PRIOR = 3.0, 0.2
HELD_IN_STEPS = ("busy_share", "split_ns", *GRADES)
OWN_IN_STEPS = ("matmul",)
# What fits choose between.
CHOSEN = tuple(name for name, _ in calibration.CHOICES.values())


class Architecture(NamedTuple):
    """Cards with the same curves: the chip that has them, the others, and whose curves stand for the rest.

    ``steps`` is the chip whose model steps show the families that no op was timed of.
    """

    main: str
    others: tuple[str, ...] = ()
    rest: str = "h200"
    steps: str = ""


ARCHITECTURES = (
    Architecture("v100", ("v100_pcie",)),
    Architecture("t4"),
    Architecture("a100", ("a100_pcie40",)),
    Architecture("a40", ("rtx3090",), "a100", "rtx3090"),
)


class Source(NamedTuple):
    """A sweep of a card: its file's name, the chip, and its cases."""

    name: str
    chip: str
    cases: Sequence[sweep.Case]


def sources(folder: Path) -> list[Source]:
    """Return the sweeps of a folder whose cards have a chip."""
    found = []
    for path in clock_truth.files(folder):
        if clock_truth.kind_of(path) == "sweep":
            chip = clock_truth.chip_of(sweep.device_of(path))
            cases = [case for case in sweep.read(path) if case.kernels]
            if chip is not None and cases:
                found.append(Source(path.stem, chip, cases))
    return found


def known_rates(chip: chips.Chip) -> tuple[Rates, float]:
    """Return the rates that a fit begins with, and the DRAM's peak: what a fit wrote before has no part."""
    figures = clock_truth.unfitted(chip, dram_share=0.9, derating=1.0)
    rates = chip_rates.rates(figures)
    cache = min(rates.max_cache_bytes_per_ns, 3.0 * rates.dram_bytes_per_ns)
    return rates._replace(cache_bytes_per_ns=cache), rates.dram_bytes_per_ns / 0.9


def fit_steps(
    architecture: Architecture,
    steps: Sequence[Timing],
    rates: Rates,
    share: float,
    curves: Mapping[str, Mapping[str, float]],
    told: Collection[tuple[str, str]],
) -> tuple[dict[str, Mapping[str, float]], dict[str, Mapping[str, float]]]:
    """Return the curves with what steps tell and ops, in ``told``, did not; and what is the card's own.

    A card may clock higher than its data sheet says, or have matrix units of another rate beside its cores.
    """
    start = {**inherited(architecture), **curves}
    occurring = sorted({kernel.family for step in steps for kernel in step.kernels})
    free = [
        pair
        for pair in free_coefficients(occurring)
        if pair[1] not in HELD_IN_STEPS and (pair not in told or pair[0] in OWN_IN_STEPS)
    ]
    free = identified(steps, rates, free, start, share)
    found = fit(steps, rates, free, start, starts=1, prior=STEP_PRIOR, dram_share=share)
    shown = sorted({family for family, _ in free} - set(OWN_IN_STEPS))
    own: dict[str, Mapping[str, float]] = {
        family: found[family] for family in OWN_IN_STEPS if family in occurring
    }
    return {**curves, **{family: found[family] for family in shown}}, own


def inherited(architecture: Architecture) -> dict[str, Mapping[str, float]]:
    """Return the curves of an architecture's main chip without its own: what its fit begins with."""
    rest = [] if architecture.rest == architecture.main else relatives.line(chips.load(architecture.rest))
    return dict(relatives.joined(chips.load(architecture.main), rest))


def different(
    curves: Mapping[str, Mapping[str, float]], start: Mapping[str, Mapping[str, float]]
) -> dict[str, Mapping[str, float]]:
    """Return the coefficients that differ from those behind, and choices: what no timing told is not kept."""
    found: dict[str, Mapping[str, float]] = {}
    for family, table in curves.items():
        known = {**FAMILIES[family].defaults, **start.get(family, {})}
        own = {
            name: value
            for name, value in table.items()
            if rounded(value) != rounded(known[name]) or name in CHOSEN
        }
        if own:
            found[family] = own
    return found


def fit_architecture(
    architecture: Architecture,
    data: Sequence[Source],
    whole: bool,
    starts: int = STARTS,
    steps: Sequence[Timing] = (),
) -> dict[str, chips.Chip]:
    """Return the descriptions of an architecture's chips, fitted; empty without data of one."""
    names = [
        name
        for name in (architecture.main, *architecture.others)
        if any(source.chip == name for source in data)
    ]
    if not names:
        return {}
    if architecture.steps and architecture.steps not in names and steps:
        names.append(architecture.steps)
    measured: list[Timing] = []
    as_ran: list[Timing] = []
    rates, peaks, shown = [], [], []
    for card, name in enumerate(names):
        mine = [
            case
            for source in data
            if source.chip == name
            for case in source.cases
            if whole or sweep.is_fitted(case.key)
        ]
        known, peak = known_rates(chips.load(name))
        own = calibration.timings(mine, card)
        as_ran += calibration.timings([case for case in mine if case.ran], card, as_ran=True)
        rates.append(calibration.memory_rates([each._replace(card=0) for each in own], known, peak))
        peaks.append(peak)
        shown.append(rates[-1] != known)
        measured += own
    share = np.mean(
        [
            each.dram_bytes_per_ns / peak
            for each, peak, is_shown in zip(rates, peaks, shown, strict=True)
            if is_shown
        ]
        or [0.9]
    )
    for card, is_shown in enumerate(shown):
        if not is_shown:  # as the architecture's other cards
            rates[card] = rates[card]._replace(dram_bytes_per_ns=float(share) * peaks[card])
    start = inherited(architecture)
    used = max(each.dram_bytes_per_ns / peak for each, peak in zip(rates, peaks, strict=True))
    # What ran is told first, so that each algorithm begins with the times that it took.
    begun = {**start, **calibration.fit_families(as_ran, rates, start, starts, used, also_bare=True)}
    curves = calibration.fit_families(measured, rates, begun, starts, used, also_bare=True)
    own_curves: dict[str, Mapping[str, float]] = {}
    if steps and architecture.steps:
        card = names.index(architecture.steps)
        own_share = rates[card].dram_bytes_per_ns / peaks[card]
        told = identified(measured, rates, free_coefficients(sorted(curves)), {**start, **curves}, used)
        curves, own_curves = fit_steps(architecture, steps, rates[card], own_share, curves, told)
    tables: dict[str, Mapping[str, Mapping[str, float]]] = {
        architecture.main: different(curves, start),
        architecture.steps: different(own_curves, {**start, **curves}),
    }
    text = f"{COMMAND}: fitted to half of {', '.join(s.name for s in data if s.chip in names)}"
    found = {}
    for card, name in enumerate(names):
        base = dataclasses.replace(chips.load(name), efficiency=MappingProxyType({}))
        table = tables.get(name, {})
        chip = described(base, calibration.Calibration(rates[card], table), text)
        found[name] = chip
    if architecture.main not in found:
        table = {
            family: MappingProxyType({k: rounded(v) for k, v in c.items()})
            for family, c in tables[architecture.main].items()
        }
        base = chips.load(architecture.main)
        origins = {**base.sources, "efficiency": text}
        found[architecture.main] = dataclasses.replace(
            base, efficiency=MappingProxyType(table), sources=MappingProxyType(origins)
        )
    for name, chip in found.items():
        rest = architecture.rest if name == architecture.main else architecture.main
        why = (
            f"{rest}: curves that these timings do not show"
            if name == architecture.main
            else f"{rest}: the same architecture"
        )
        origins = {**chip.sources, "efficiency_of": why}
        if not chip.efficiency:
            origins.pop("efficiency", None)
        found[name] = dataclasses.replace(chip, efficiency_of=rest, sources=MappingProxyType(origins))
    return found


def residuals(
    fitted: Mapping[str, chips.Chip], data: Sequence[Source], curves: Mapping[str, Mapping[str, float]]
) -> str:
    """Return the table of what the fitted chips make of both halves."""
    rows = []
    for source in data:
        chip = fitted.get(source.chip)
        if chip is None:
            continue
        rates = chip_rates.rates(chip)
        took = np.array([case.device_ns for case in source.cases])
        off = predicted(calibration.timings(source.cases), rates, curves) / took - 1.0
        rows += [
            clock_truth.Found(
                clock_truth.family_of(case),
                source.name,
                case.name,
                sweep.is_fitted(case.key),
                error,
                case.device_ns,
            )
            for case, error in zip(source.cases, off.tolist(), strict=True)
        ]
    return clock_truth.report(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit and write; 2 if a file cannot be used."""
    parser = plain_parser(__doc__, chip=False, docs=False)
    parser.add_argument("folder", type=Path, help="a folder of measurements")
    parser.add_argument("--only", help="the architecture of this chip alone")
    parser.add_argument("--all", action="store_true", help="fit all rows, not one half")
    parser.add_argument(
        "--out", type=Path, help="the folder of the descriptions; without it nothing is written"
    )
    parser.add_argument("--steps", action="store_true", help="fit steps of timm's models, too: needs timm")
    parser.add_argument("--traces", type=Path, help="a file that keeps what was traced of them")
    options = parser.parse_args(arguments)
    try:
        data = sources(options.folder)
    except chips.ChipError as error:
        print(error, file=sys.stderr)
        return 2
    steps: list[Timing] = []
    for path in clock_truth.files(options.folder) if options.steps else []:
        if clock_truth.kind_of(path) == "timm":
            found = timm_steps.timings(path, timm_steps.Traces(options.traces))
            steps += [
                step._replace(weight=STEP_WEIGHT)
                for row, step in found
                if options.all or sweep.is_fitted(clock_truth.step_key(row))
            ]
    for each in ARCHITECTURES:
        if options.only and options.only not in (each.main, *each.others):
            continue
        fitted = fit_architecture(each, data, options.all, steps=steps if each.steps else ())
        if not fitted:
            continue
        curves = chip_rates.efficiency(fitted[each.main])
        print(f"{each.main}: {', '.join(fitted)}\n{residuals(fitted, data, curves)}", flush=True)
        if options.out:
            for name, chip in fitted.items():
                (options.out / f"{name}.toml").write_text(
                    to_toml(chip, f"{chip.description}."), encoding="utf-8"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
