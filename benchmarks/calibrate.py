"""Fits a chip's efficiency to a sweep of ops and to model steps, and writes its description.

    python -m benchmarks.calibrate --chip h200 OPS.json MODELS.json --out torch_loom/chips/h200.toml

With them goes half of what this project measured itself (:data:`benchmarks.clock_truth.MEASURED`) of that
card and of those that share its curves, whose memory rates are written beside: ``h100.toml`` beside
``h200.toml``. What no op shows is moved no further than the steps' total times ask for.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from benchmarks import clock_error, clock_truth, fit_chips, kernel_names
from benchmarks._common import plain_parser
from torch_loom import chips
from torch_loom.chips import rates as chip_rates
from torch_loom.chips.cost import calibration, sweep
from torch_loom.chips.cost.families import FAMILIES
from torch_loom.chips.cost.fit import Timing, fit, free_coefficients, identified, predicted
from torch_loom.chips.cost.formulas import Rates
from torch_loom.chips.cost.records import Kernel
from torch_loom.chips.fitted import described
from torch_loom.chips.writer import to_toml

# A step has hundreds of kernels and one time: it counts as a few timings of ops.
STEP_WEIGHT = 3.0
# Families that the named sweep has too few rows of: own ones are taken of these, and of what it lacks.
FEW = ("convolution", "layout")
# Steps and ops of the files that are named count more than own measurements, of which there are more.
NAMED_WEIGHT = 4.0
# A class of kernels with a smaller share of its step tells little, and may be counted to another one.
LEAST_SHARE = 0.03
# Coefficients that a step's total does not determine stay close to where they are.
PRIOR = 0.06
HELD = ("derate", "derate_ns", "busy_share", "split_ns")

SOURCE = (
    "python -m benchmarks.calibrate: fitted to a sweep of ops and to model steps of one card, and to half of "
    "what this project measured of an H100 and an H200"
)

Coefficients = Mapping[str, Mapping[str, float]]


def step_timings(path: Path, card: int = 0, half: bool = False) -> list[Timing]:
    """Return the kernels and the time of each recorded step; with ``half``, of one half of the models."""
    found = []
    for row in clock_error.read_steps(path):
        if not half or sweep.is_fitted(clock_truth.step_key(row)):
            name = f"{row['model']} {row['dtype']} {row['mode']} {row['shape']}"
            kernels = clock_error.step_kernels(row)
            found += _by_class(Timing(name, kernels, row["kernel_ms"] * 1e6, STEP_WEIGHT, card), row)
    return found


def _by_class(step: Timing, row: Mapping[str, Any]) -> list[Timing]:
    """Return a step's classes of kernels as timings of their own, where the row has them; else the step."""
    if "by_class" not in row:
        return [step]
    parts: dict[str, Counter[Kernel]] = {}
    for kernel, count in step.kernels.items():
        parts.setdefault(kernel_names.class_of_family(kernel.family), Counter())[kernel] += count
    found = []
    for name, (_, took_us) in row["by_class"].items():
        share = took_us * 1e3 / step.took_ns
        if name in parts and share >= LEAST_SHARE:
            weight = step.weight * math.sqrt(share)
            found.append(Timing(f"{step.name} {name}", parts[name], took_us * 1e3, weight, step.card))
    return found


class Own(NamedTuple):
    """What this project measured of cards with the same curves, the fitted half: chips, rates, timings."""

    names: list[str]
    rates: list[Rates]
    ops: list[Timing]
    steps: list[Timing]


def own(chip: chips.Chip, rates: Rates, with_steps: bool = True) -> Own:
    """Return the own measurements of a chip, whose rates are given, and of those that name its curves."""
    found = Own([chip.name], [rates], [], [])
    for path in clock_truth.files(clock_truth.MEASURED):
        name = clock_truth.chip_of(sweep.device_of(path))
        if name is None or chip.name not in (name, chips.load(name).efficiency_of):
            continue
        if name not in found.names:
            found.names.append(name)
            found.rates.append(chip_rates.rates(chips.load(name)))
        card = found.names.index(name)
        kind = clock_truth.kind_of(path)
        if kind == "sweep":
            cases = [case for case in sweep.read(path) if sweep.is_fitted(case.key)]
            timings = calibration.timings(cases, card)
            if card:
                known, peak = fit_chips.known_rates(chips.load(name))
                alone = [each._replace(card=0) for each in timings]
                found.rates[card] = calibration.memory_rates(alone, known, peak)
            found.ops.extend(timings)
        elif kind == "steps" and with_steps:
            found.steps.extend(step_timings(path, card, half=True))
    return found


def fit_together(
    measured: Sequence[Timing],
    steps: Sequence[Timing],
    rates: Rates | Sequence[Rates],
    start: Coefficients,
    dram_share: float = 0.9,
) -> dict[str, dict[str, float]]:
    """Fit all families that occur to ops and steps at once, from where the sweep alone has brought them."""
    swept = {kernel.family for timing in measured for kernel in timing.kernels}
    occurring = {kernel.family for timing in steps for kernel in timing.kernels} | swept
    free = [
        (family, name)
        for family, name in free_coefficients(sorted(occurring & set(FAMILIES)))
        if family in swept or name not in HELD
    ]
    timings = [*steps, *measured]
    free = identified(timings, rates, free, start, dram_share)
    fitted = fit(timings, rates, free, start, starts=1, prior=PRIOR, dram_share=dram_share)
    return {family: fitted[family] for family in sorted(occurring)}


def fit_only(
    measured: Sequence[Timing], chip: chips.Chip, mine: Own, only: Sequence[tuple[str, str]], share: float
) -> dict[str, dict[str, float]]:
    """Return tables of the families in ``only``: these coefficients fitted to ops, the others as they are.

    What steps say of them stays out: a coefficient of few kernels changes their totals little.
    """
    families = {family for family, _ in only}
    timings = [
        each
        for each in (*measured, *mine.ops)
        if families.intersection(kernel.family for kernel in each.kernels)
    ]
    start = chip_rates.efficiency(chip)
    free = identified(timings, mine.rates, only, start, share)
    fitted = fit(timings, mine.rates, free, start, starts=1, prior=PRIOR, dram_share=share)
    return {family: fitted[family] for family in sorted(families)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the calibration; 2 if a file cannot be used."""
    parser = plain_parser(__doc__, docs=False)
    parser.add_argument("ops", type=Path, help="a sweep of ops")
    parser.add_argument("models", type=Path, help="a list of model steps")
    parser.add_argument("--out", type=Path, help="where to write the description")
    parser.add_argument("--no-own-steps", action="store_true", help="of the own measurements: ops alone")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="FAMILY.NAME",
        help="fit these coefficients alone, to ops alone; the others stay as the chip has them",
    )
    options = parser.parse_args(arguments)
    only = [(family, name) for family, _, name in (each.partition(".") for each in options.only)]
    for family, name in only:
        if name not in FAMILIES[family].defaults if family in FAMILIES else True:
            parser.error(f"--only {family}.{name}: no family has such a coefficient")
    try:
        chip = chips.load(options.chip)
        measured = calibration.timings(sweep.read(options.ops))
        steps = [] if only else step_timings(options.models)
    except (clock_error.DataError, chips.ChipError) as error:
        print(error, file=sys.stderr)
        return 2
    measured, steps = (
        [each._replace(weight=each.weight * NAMED_WEIGHT) for each in timings]
        for timings in (measured, steps)
    )
    rates = chip_rates.rates(chip)
    peak = rates.dram_bytes_per_ns / (chip.dram_share or chip_rates.GUESSED_DRAM_SHARE)
    rates = calibration.memory_rates(measured, rates, peak)
    mine = own(chip, rates, not (options.no_own_steps or only))
    share = rates.dram_bytes_per_ns / peak
    if only:
        tables = fit_only(measured, chip, mine, only, share)
        report({"ops": measured, "own ops": mine.ops}, mine.rates, {**chip_rates.efficiency(chip), **tables})
        if options.out:
            result = described(chip, calibration.Calibration(rates, tables), SOURCE)
            options.out.write_text(to_toml(result, chip.description), encoding="utf-8")
        return 0
    found = calibration.fit_families(measured, mine.rates, dram_share=share)
    told = {family for family in found if not family.startswith(FEW)}
    rest, own_rest = (
        [each for each in timings if not {kernel.family for kernel in each.kernels} <= told]
        for timings in (measured, mine.ops)
    )
    swept, rest = [*measured, *own_rest], [*rest, *own_rest]
    found |= calibration.fit_families(rest, mine.rates, found, dram_share=share)
    fitted = fit_together(swept, [*steps, *mine.steps], mine.rates, found, share)
    if options.out:
        result = described(chip, calibration.Calibration(rates, fitted), SOURCE)
        options.out.write_text(to_toml(result, chip.description), encoding="utf-8")
        for name, others in list(zip(mine.names, mine.rates, strict=True))[1:]:
            result = described(chips.load(name), calibration.Calibration(others, {}), SOURCE)
            origins = {key: text for key, text in result.sources.items() if key != "efficiency"}
            result = dataclasses.replace(result, sources=MappingProxyType(origins))
            text = to_toml(result, f"{result.description}.")
            options.out.with_name(f"{name}.toml").write_text(text, encoding="utf-8")
    groups = {"ops": measured, "steps": steps, "own ops": mine.ops, "own steps": mine.steps}
    report(groups, mine.rates, fitted)
    return 0


def report(
    groups: Mapping[str, Sequence[Timing]], rates: Sequence[Rates], fitted: Mapping[str, Mapping[str, float]]
) -> None:
    """Print how far off each group of timings is."""
    for name, timings in groups.items():
        if not timings:
            continue
        took = np.array([each.took_ns for each in timings])
        off = np.abs(predicted(timings, rates, fitted) / took - 1.0)
        print(f"{name}: fitted to {off.mean():.1%} over {len(off)}, worst {off.max():.1%}")


if __name__ == "__main__":
    sys.exit(main())
