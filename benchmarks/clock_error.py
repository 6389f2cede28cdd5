"""How far the cost model is off: device times of ops or of model steps, against those of a real card.

    python -m benchmarks.clock_error --chip h200 OPS.json     # a sweep of ops: held out in five parts
    python -m benchmarks.clock_error --chip h200 MODELS.json  # model steps: as the chip's description says
    python -m benchmarks.clock_error FOLDER   # all files of a folder, each with the chip of its card
    python -m benchmarks.clock_error FOLDER --without-card  # by data sheet and curves of other cards alone

OPS.json: ``{"ops": [{op, shape, dtype, ms, device_ms}]}``. Coefficients are fitted to four fifths of each
op's timings and predict the rest; nothing of the description but its figures is used.
MODELS.json: ``[{model, dtype, mode, shape, kernel_ms}]``, or an object that has them under ``steps``: the ops
of each step are traced, without a device, and their kernels' times added up. Needs transformers.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch

from benchmarks import clock_picture, clock_truth, hf_models, timm_steps, traced_ops
from benchmarks._common import DOCS_FILE, plain_parser, write_docs
from tools.blocks import markdown_table
from torch_loom import chips
from torch_loom.chips import rates as chip_rates
from torch_loom.chips import uncertainty
from torch_loom.chips.cost import CostModel, Kernel, calibration, sweep
from torch_loom.chips.cost.calls import in_tf32
from torch_loom.chips.cost.lower import lower

COMMAND = "python -m benchmarks.clock_error"
MAX_FILE_BYTES = 64 << 20
MODES = ("infer", "train")
DTYPES = ("float32", "float16", "bfloat16")
# What the sections of docs/performance.md say, before the result.
HOW = {
    "clock_error_ops": "Coefficients of each family of ops are fitted to four fifths of the timings of a "
    "card, and predict the rest; five times, so that each is left out once (target 6%).",
    "clock_error_models": "Kernels of steps of models, of the shapes that their ops have, summed up (targets "
    "5%, worst 15%). These models were looked at while the cost model was written.",
}
TRUTH_TITLE = "Device time on other cards, against their measurements"
TRUTH = (
    "Public timings of V100, T4, A100, A40 and RTX 3090 and those of an H200. One half of each source, by a "
    "hash of the row, is fitted, and errors of the other half show what to expect; of the H200's rows all "
    "are fitted. Other cards and models of the same sources are not ours to see."
)
OWN = (
    "What this project measured of an H100 and an H200 (`benchmarks/measured`), of which one half is fitted "
    "with them: models of many kinds, and ops of random sizes, small ones too."
)
INTERVALS = (
    "Intervals that hold eight of ten cases, as `loom plan` gives them: made of one part of the half that is "
    "not fitted, and tested on the other part. Ends lie in the middle of two: each row or each card counts "
    "alike."
)
WITHOUT_TITLE = "Device time on cards that nobody measured"
WITHOUT = (
    "Each card forecast from its data sheet and the curves of the measured chips that are most like it; "
    "no curve that was measured of chips with the same cores is used. What an operation costs in power "
    "(`torch_loom/chips/power.py`) is one figure for each architecture: those of Volta and Turing were found "
    "by the T4's and V100's own rates. Mean errors of all rows, by family and source."
)
# The host's transfers are no kernels.
LINKS = ("host_to_device", "host_to_device_pinned", "device_to_host", "device_to_host_pinned")
WIDE = 8
PICTURE = "clock_error.svg"


class DataError(ValueError):
    """The file is not what the benchmark reads; the message names the row."""


def is_sweep(path: Path) -> bool:
    """Return whether the file is a sweep of ops rather than a list of model steps."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise DataError(f"{path}: at most {MAX_FILE_BYTES} bytes")
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    return isinstance(content, dict) and "steps" not in content


def read_steps(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of model steps, checked.

    Raises:
        DataError: a row has another layout.
    """
    content = json.loads(path.read_bytes())
    rows = content.get("steps") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not rows:
        raise DataError(f"{path}: must be a list of model steps or an object with 'steps' or 'ops'")
    for number, row in enumerate(rows):
        where = f"{path}, row {number}"
        if not isinstance(row, dict):
            raise DataError(f"{where}: must be an object, got {type(row).__name__}")
        if row.get("model") not in hf_models.MODELS:
            raise DataError(
                f"{where}: model must be one of {', '.join(hf_models.MODELS)}, got {row.get('model')!r:.100}"
            )
        if row.get("mode") not in MODES or row.get("dtype") not in DTYPES:
            raise DataError(f"{where}: mode must be of {MODES}, dtype of {DTYPES}")
        if not isinstance(row.get("tf32", False), bool):
            raise DataError(f"{where}: tf32 must be true or false, got {row['tf32']!r:.100}")
        shape, took = row.get("shape"), row.get("kernel_ms")
        if (
            not isinstance(shape, list)
            or len(shape) != 2
            or not all(isinstance(n, int) and 0 < n < 1 << 20 for n in shape)
        ):
            raise DataError(f"{where}: shape must be two whole numbers above 0, got {shape!r:.100}")
        if (
            isinstance(took, bool)
            or not isinstance(took, (int, float))
            or not math.isfinite(took)
            or took <= 0
        ):
            raise DataError(f"{where}: kernel_ms must be a number above 0, got {took!r:.100}")
    return rows


def step_kernels(row: dict[str, Any]) -> Counter[Kernel]:
    """Return the kernels of one step of a model, and how often each runs."""
    dtype = getattr(torch, row["dtype"])
    train = row["mode"] == "train"
    model = hf_models.build(row["model"], dtype, train, "meta")
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True) if train else None
    batch = hf_models.inputs(row["model"], row["shape"], dtype, "meta")
    ops = traced_ops.trace(lambda: hf_models.step(model, batch, optimizer))
    if row.get("tf32"):
        ops = [in_tf32(op) if op.name.startswith("convolution") else op for op in ops]
    kernels = Counter(kernel for op in ops for kernel in lower(op))
    return Counter({kernel: count for kernel, count in kernels.items() if kernel.family not in LINKS})


def step_error(model: CostModel, row: dict[str, Any], kernels: Counter[Kernel], wide: bool) -> float:
    """Print one row of the report; return the error of its time, as a share."""
    families: dict[str, float] = defaultdict(float)
    for kernel, count in kernels.items():
        families[kernel.family] += model.time(kernel).total_ns * count * 1e-6
    predicted = sum(families.values())
    error = predicted / row["kernel_ms"] - 1.0
    launches = sum(kernel.launches * count for kernel, count in kernels.items())
    print(
        f"{row['model']:14}{row['dtype']:10}{row['mode']:7}{row['shape']!s:12}"
        f" recorded {row['kernel_ms']:9.3f} ms"
        f"  predicted {predicted:9.3f} ms  {error:+7.1%}  kernels {launches} of {row.get('kernels', '?')}"
    )
    if wide:
        longest = sorted(families.items(), key=lambda each: -each[1])[:WIDE]
        print("    " + "  ".join(f"{name} {took:.2f}" for name, took in longest))
    return error


def summary(errors: Sequence[float], names: Sequence[str]) -> str:
    """Return the last line: mean and worst error."""
    sizes = np.abs(np.array(errors))
    worst = int(sizes.argmax())
    mean = f"mean device-time error {sizes.mean():.1%} over {len(sizes)} cases"
    return f"{mean}, worst {sizes[worst]:.1%} ({names[worst]})"


def _table(title: str, errors: Sequence[float], groups: Sequence[str], names: Sequence[str]) -> str:
    """Return a table of mean and worst error by group."""
    lines = []
    for group in dict.fromkeys(groups):
        members = [i for i, each in enumerate(groups) if each == group]
        sizes = np.abs(np.array([errors[i] for i in members]))
        lines.append(
            [
                group,
                str(len(members)),
                f"{sizes.mean():.1%}",
                f"{sizes.max():.1%}",
                names[members[int(sizes.argmax())]],
            ]
        )
    return markdown_table([title, "cases", "mean error", "worst", "which"], lines)


def ops_report(chip: chips.Chip, path: Path, by_shape: bool) -> str:
    """Print errors by op, each case predicted by a fit that did not see it; return the last line."""
    cases = sweep.read(path)
    names = [case.name for case in cases]
    rates = chip_rates.rates(chip)
    took = np.array([case.device_ns for case in cases])
    if by_shape:
        # All dtypes of a shape are left out together: harder, since float16 and bfloat16 take the same time.
        shapes = list(dict.fromkeys((case.op, case.shape) for case in cases))
        part_of = dict(zip(shapes, calibration.shape_parts(shapes), strict=True))
        predicted = calibration.held_out_parts(cases, rates, [part_of[case.op, case.shape] for case in cases])
    else:
        predicted = calibration.held_out(cases, rates, [case.op for case in cases])
    errors = list(predicted / took - 1.0)
    print(_table("op", errors, [case.op for case in cases], names))
    return summary(errors, names)


def models_report(
    chip: chips.Chip, path: Path, wide: bool, kernels_of: Callable[[dict[str, Any]], Counter[Kernel]]
) -> str:
    """Print the error of every step; return the last line."""
    model = chip_rates.model(chip)
    rows = read_steps(path)
    names = [f"{row['model']} {row['dtype']} {row['mode']} {row['shape']}" for row in rows]
    errors = [step_error(model, row, kernels_of(row), wide) for row in rows]
    print(_table("model", errors, [row["model"] for row in rows], names))
    return summary(errors, names)


def folder_report(
    folder: Path,
    with_steps: bool,
    traces: Path | None = None,
    intervals: bool = False,
    pictures: Path | None = None,
    own: bool = False,
) -> tuple[str, str]:
    """Print errors by family and source of a folder's files; return the tables by family and the last line.

    Args:
        folder: of the files.
        with_steps: whether steps of models are forecast, too.
        traces: a file that keeps what was traced of timm's models.
        intervals: whether to write chips/uncertainty.json.
        pictures: a folder for the picture.
        own: whether to read what this project measured itself, too.
    """
    found: list[clock_truth.Found] = []
    for path in [*clock_truth.files(folder), *(clock_truth.files(clock_truth.MEASURED) if own else ())]:
        kind = clock_truth.kind_of(path)
        if kind == "sweep":
            found += clock_truth.ops(path, print)
        elif kind == "steps" and with_steps:
            found += clock_truth.steps(path, step_kernels, read_steps(path))
        elif kind == "timm" and with_steps:
            found += timm_steps.errors(path, timm_steps.Traces(traces))
        elif kind == "other":
            print(f"{path.name}: nothing here reads it")
    if not found:
        raise DataError(f"{folder}: no file of timings that a chip stands for")
    print(clock_truth.report(found))
    other = [each for each in found if not each.is_fitted] or found
    line = summary([each.error for each in other], [f"{each.source}: {each.name}" for each in other])
    ours = {path.stem for path in clock_truth.files(clock_truth.MEASURED)}
    public = [each for each in found if each.source not in ours]
    made = clock_truth.intervals(public or found)
    table = clock_truth.intervals_table(made)
    print(table)
    if intervals:
        text = json.dumps({"by": f"{COMMAND} FOLDER --write-uncertainty", "families": made}, indent=1)
        uncertainty.FILE.write_text(f"{text}\n", encoding="utf-8")
    if pictures is not None:
        (pictures / PICTURE).write_text(clock_picture.picture(found), encoding="utf-8")
    tables = clock_truth.report(public or found, by_source=False)
    if own:
        mine = clock_truth.report([each for each in found if each.source in ours], by_source=False)
        tables += f"\n\n{OWN}\n\n{mine}"
    return f"{tables}\n\n{INTERVALS}\n\n{table}", line


def without_card_report(folder: Path) -> tuple[str, str]:
    """Print errors of a folder's sweeps, each forecast as if its card were not measured; return the table.

    With it comes the last line.
    """
    sweeps = [path for path in clock_truth.files(folder) if clock_truth.kind_of(path) == "sweep"]
    found = [each for path in sweeps for each in clock_truth.ops(path, print, is_left_out=True)]
    if not found:
        raise DataError(f"{folder}: no sweep of ops that a chip stands for")
    table = clock_truth.without_card_report(found)
    print(table)
    return table, summary([each.error for each in found], [f"{each.source}: {each.name}" for each in found])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 2 if the file cannot be used."""
    parser = plain_parser(__doc__)
    parser.add_argument("file", type=Path, help="a sweep of ops, a list of model steps, a folder")
    parser.add_argument("--families", action="store_true", help="print where each step's time goes")
    parser.add_argument("--by-shape", action="store_true", help="leave out all dtypes of a shape together")
    parser.add_argument("--no-steps", action="store_true", help="of a folder: ops alone, which takes seconds")
    parser.add_argument(
        "--without-card",
        action="store_true",
        help="of a folder: forecast each card's ops by its data sheet and the curves of others",
    )
    parser.add_argument("--own", action="store_true", help="with a folder: this project's measurements, too")
    parser.add_argument("--traces", type=Path, help="a file that keeps what was traced of timm's models")
    parser.add_argument(
        "--write-uncertainty",
        action="store_true",
        help="of a folder: write torch_loom/chips/uncertainty.json",
    )
    options = parser.parse_args(arguments)
    try:
        chip = chips.load(options.chip)
        if options.file.is_dir() and options.without_card:
            table, line = without_card_report(options.file)
            if options.write_docs:
                body = f"{WITHOUT}\n\n{table}\n\n{line[0].upper()}{line[1:]}."
                write_docs(
                    "clock_error_without_card", WITHOUT_TITLE, body, f"{COMMAND} FOLDER --without-card"
                )
            print(line)
            return 0
        if options.file.is_dir():
            table, line = folder_report(
                options.file,
                not options.no_steps,
                options.traces,
                options.write_uncertainty,
                DOCS_FILE.parent / "pictures" if options.write_docs else None,
                options.own,
            )
            if options.write_docs:
                write_docs(
                    "clock_error_truth",
                    TRUTH_TITLE,
                    f"{TRUTH}\n\n![forecast against measured](pictures/{PICTURE})\n\n{table}",
                    COMMAND,
                )
            print(line)
            return 0
        if is_sweep(options.file):
            subject, title = "clock_error_ops", "Device time of ops, against a GPU's"
            line = ops_report(chip, options.file, options.by_shape)
        else:
            subject, title = "clock_error_models", "Device time of model steps, against a GPU's"
            line = models_report(chip, options.file, options.families, step_kernels)
    except (DataError, chips.ChipError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.write_docs:
        write_docs(subject, title, f"{HOW[subject]} {line[0].upper()}{line[1:]}.", COMMAND)
    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
