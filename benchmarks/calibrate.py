"""Fits a chip's efficiency to a sweep of ops and to model steps, and writes its description.

    python -m benchmarks.calibrate --chip h200 OPS.json MODELS.json --out torch_loom/chips/h200.toml

Gradients, optimizers and batch norms are in no sweep of that layout; their families start at their defaults
and are moved no further than the steps' total times ask for. ``--leave-out`` fits once more without each
model in turn, and prints how far off the steps of that model then are: what to expect of an unmeasured model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from benchmarks import clock_error
from torch_loom import chips
from torch_loom.chips import rates as chip_rates
from torch_loom.chips.cost import calibration, sweep
from torch_loom.chips.cost.families import FAMILIES
from torch_loom.chips.cost.fit import Timing, fit, free_coefficients, identified, predicted
from torch_loom.chips.cost.formulas import Rates
from torch_loom.chips.fitted import described
from torch_loom.chips.writer import to_toml

# A step has hundreds of kernels and one time: it counts as a few timings of ops.
STEP_WEIGHT = 3.0
# Coefficients that a step's total does not determine stay close to where they are.
PRIOR = 0.06
HELD = ("derate", "derate_ns", "busy_share", "split_ns")

Coefficients = Mapping[str, Mapping[str, float]]


def step_timings(path: Path) -> tuple[list[str], list[Timing]]:
    """Return the model of each recorded step, and the step's kernels and time."""
    models, found = [], []
    for row in clock_error.read_steps(path):
        name = f"{row['model']} {row['dtype']} {row['mode']} {row['shape']}"
        kernels = clock_error.step_kernels(row)
        models.append(row["model"])
        found.append(Timing(name, kernels, row["kernel_ms"] * 1e6, STEP_WEIGHT))
    return models, found


def fit_together(
    measured: Sequence[Timing],
    steps: Sequence[Timing],
    rates: Rates,
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


def leave_out(
    models: Sequence[str], steps: Sequence[Timing], measured: Sequence[Timing], found: calibration.Calibration
) -> None:
    """Print the errors of each model's steps after a fit that saw none of them."""
    errors: list[float] = []
    for model in dict.fromkeys(models):
        inside = [step for step, each in zip(steps, models, strict=True) if each != model]
        outside = [step for step, each in zip(steps, models, strict=True) if each == model]
        fitted = fit_together(measured, inside, found.rates, found.coefficients)
        off = predicted(outside, found.rates, fitted) / np.array([step.took_ns for step in outside]) - 1.0
        errors += off.tolist()
        print(f"left out {model:14}", " ".join(f"{each:+.0%}" for each in off), flush=True)
    sizes = np.abs(np.array(errors))
    print(f"left-out device-time error {sizes.mean():.1%} over {len(sizes)} steps, worst {sizes.max():.1%}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the calibration; 2 if a file cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("ops", type=Path, help="a sweep of ops")
    parser.add_argument("models", type=Path, help="a list of model steps")
    parser.add_argument("--chip", default="h200", help="name or description of the chip")
    parser.add_argument("--out", type=Path, help="where to write the description")
    parser.add_argument(
        "--leave-out", action="store_true", help="measure how well it does on a model left out"
    )
    options = parser.parse_args(arguments)
    try:
        chip = chips.load(options.chip)
        measured = calibration.timings(sweep.read(options.ops))
        models, steps = step_timings(options.models)
    except (clock_error.DataError, chips.ChipError) as error:
        print(error, file=sys.stderr)
        return 2
    rates = chip_rates.rates(chip)
    peak = rates.dram_bytes_per_ns / (chip.dram_share or chip_rates.GUESSED_DRAM_SHARE)
    found = calibration.calibrate(measured, rates, dram_peak=peak)
    share = found.rates.dram_bytes_per_ns / peak
    fitted = fit_together(measured, steps, found.rates, found.coefficients, share)
    source = "python -m benchmarks.calibrate: fitted to a sweep of ops and to model steps of one card"
    result = described(chip, calibration.Calibration(found.rates, fitted), source)
    if options.out:
        options.out.write_text(to_toml(result, chip.description), encoding="utf-8")
    for name, timings in (("ops", measured), ("steps", steps)):
        off = np.abs(
            predicted(timings, found.rates, fitted) / np.array([each.took_ns for each in timings]) - 1.0
        )
        print(f"{name}: fitted to {off.mean():.1%} over {len(off)}, worst {off.max():.1%}")
    if options.leave_out:
        leave_out(models, steps, measured, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
