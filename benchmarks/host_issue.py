"""What the host takes to issue an op, from steps of models, and how far whole steps are off with it.

    python -m benchmarks.host_issue --chip h200 MODELS.json [--write]

MODELS.json: ``[{model, dtype, mode, shape, ms, kernel_ms}]``. A step of each is planned. Where it took longer
than half as much again as its kernels the device waited for the host, and ``ms`` over the commands that the
host issues is what it takes for one. The median of the half that is fitted, by a hash of the row, is the
chip's ``host_issue_ns``, which ``--write`` writes: chips with the same host name this one (``host_of``).
Needs transformers.
"""

from __future__ import annotations

import re
import statistics
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

import torch

from benchmarks import hf_models
from benchmarks._common import plain_parser, write_docs
from benchmarks.clock_error import DataError, is_sweep, read_steps
from tools.blocks import markdown_table
from torch_loom import chips
from torch_loom.chips.cost import sweep
from torch_loom.chips.fitted import rounded
from torch_loom.device._core.device_index import DEVICE_TYPE

COMMAND = "python -m benchmarks.host_issue"
KEY = "host_issue_ns"


# A step that takes longer than so many times its kernels waits for the host.
WAITS = 1.5


class Step(NamedTuple):
    """A step that was timed: what it took, what it is planned to take, and what its kernels took, in ms."""

    name: str
    is_fitted: bool
    commands: float
    kernel_ms: float
    wall_ms: float
    planned_wall_ms: float

    @property
    def waits(self) -> bool:
        """Whether the device waited for the host."""
        return self.wall_ms > WAITS * self.kernel_ms

    @property
    def error(self) -> float:
        """How far the plan is off, as a share of what the step took."""
        return self.planned_wall_ms / self.wall_ms - 1.0


def planned(chip: str, row: dict[str, Any]) -> Step:
    """Plan two steps of a row and return the second one."""
    device = torch.get_device_module(DEVICE_TYPE)
    dtype, trains = getattr(torch, row["dtype"]), row["mode"] == "train"
    with warnings.catch_warnings(), device.dry_run(chip=chip, devices=1):
        warnings.simplefilter("ignore")
        model = hf_models.build(row["model"], dtype, trains, "cpu").to(DEVICE_TYPE)
        optimizer = torch.optim.AdamW(model.parameters()) if trains else None
        batch = hf_models.inputs(row["model"], row["shape"], dtype, DEVICE_TYPE)
        hf_models.step(model, batch, optimizer)
        device.synchronize()
        began = device.clock()
        hf_models.step(model, batch, optimizer)
        issued = device.clock()
        device.synchronize()
        ended = device.clock()
        del model, optimizer, batch
    name = f"{row['model']} {row['dtype']} {row['mode']} {row['shape']}"
    commands = (issued - began) * 1e9 / chips.load(chip).host_issue_ns
    return Step(
        name,
        sweep.is_fitted(f"host {name}"),
        commands,
        row["kernel_ms"],
        row["ms"],
        (ended - began) * 1e3,
    )


def fitted(steps: Sequence[Step]) -> float:
    """Return nanoseconds of a command: the median of the steps that are fitted and waited for the host.

    Raises:
        DataError: there is no such step.
    """
    found = [each.wall_ms * 1e6 / each.commands for each in steps if each.is_fitted and each.waits]
    if not found:
        raise DataError("no step of the half that is fitted waited for its host: nothing says what it takes")
    return rounded(statistics.median(found))


def write(issue_ns: float, source: str, path: Path) -> None:
    """Write the figure, and where it comes from, into a description that has both."""
    text = re.sub(rf"(?m)^{KEY} = [0-9.]+$", f"{KEY} = {issue_ns}", path.read_text(encoding="utf-8"))
    path.write_text(re.sub(rf'(?m)^{KEY} = ".*"$', f'{KEY} = "{source}"', text), encoding="utf-8")


def report(steps: Sequence[Step]) -> str:
    """Return a table of the errors of whole steps."""
    rows = []
    for waits, what in ((True, "waits for the host"), (False, "keeps the device busy")):
        for is_fitted in (True, False):
            errors = [abs(each.error) for each in steps if (each.waits, each.is_fitted) == (waits, is_fitted)]
            if errors:
                half = "fitted" if is_fitted else "not fitted"
                rows.append(
                    [what, half, str(len(errors)), f"{statistics.fmean(errors):.1%}", f"{max(errors):.1%}"]
                )
    return markdown_table(["step", "half", "cases", "mean error", "worst"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Plan, fit and report; 2 if the file cannot be used."""
    parser = plain_parser(__doc__)
    parser.add_argument("file", type=Path, help="model steps")
    parser.add_argument("--write", action="store_true", help="write the chip's description")
    options = parser.parse_args(arguments)
    try:
        if is_sweep(options.file):
            raise DataError(f"{options.file}: must be a list of model steps")
        rows = [row for row in read_steps(options.file) if row.get("ms")]
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    torch.backends.cudnn.allow_tf32 = False  # as where these were recorded
    steps = []
    for row in rows:
        each = planned(options.chip, row)
        steps.append(each)
        print(
            f"{each.name:42} {each.commands:6.0f} commands {each.wall_ms * 1e3 / each.commands:6.1f} us each"
            f"   step {each.planned_wall_ms:8.2f} of {each.wall_ms:8.2f} ms {each.error:+7.1%}",
            flush=True,
        )
    try:
        issue_ns = fitted(steps)
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    described = chips.load(options.chip).host_issue_ns
    line = (
        f"{issue_ns / 1e3:.1f} us a command, found by {sum(each.is_fitted and each.waits for each in steps)} "
        f"steps; in the description: {described / 1e3:.1f} us"
    )
    table = report(steps)
    print(table, line, sep="\n")
    if options.write:
        source = f"{COMMAND}: time of steps of an H200 that waited for its host, over their commands"
        write(issue_ns, source, Path(chips.__file__).with_name(f"{options.chip}.toml"))
    if options.write_docs:
        body = (
            "Whole steps of models on an H200 with a slow host, for which the device may wait: planned time "
            f"against measured time, with the description's figure. {line}.\n\n{table}"
        )
        write_docs("host_issue", "Whole steps with their host", body, COMMAND)
    return 0


if __name__ == "__main__":
    sys.exit(main())
