"""Writes docs/conformance.md and the log of failures. Neither holds a date: two runs can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from tools import reports

from . import known_failures, suites
from .examine import GRADIENT_DTYPES, OUT_SAMPLES
from .model import FAMILIES, CaseResult
from .summary import Row, op_counts, rows_by_dtype, total, unexpected

HEADER = """# Conformance

PyTorch's own operator database (`torch.testing._internal.common_methods_invocations`, PyTorch {version}) run
on `{device}` against `cpu`. Written by `make conformance` (`python -m tests.conformance`); do not edit.

Both devices get the same values in the same memory layout. A sample passes when structure, dtype, shape,
strides, device, conjugate and negative bits of every output agree, values agree within the default
tolerances of `torch.testing.assert_close` (NaN equal to NaN), outputs share memory with the arguments and
with each other exactly as on the CPU, a write to such an output is seen in the argument, and the arguments
end up equal.

- *CPU fails*: the CPU rejects the sample, so the device is not asked. The database lists some dtypes for
  which there is no kernel.
- *random*: part of *passed*. The result depends on the seed (found by running the CPU with other seeds) or is
  uninitialised memory. All but the values is compared; the device must repeat its numbers for one seed and
  change them for another.
- *identical*: the share of the passed samples, random ones aside, whose values are equal to the last bit.
- *known*: failures listed in `tests/conformance/known_failures.py`; they count as failures in the rate.
- The rate is passed / (passed + failed + known): of the samples that pass on the CPU.
"""

KIND_TITLES = {
    "forward": "Forward",
    "inplace": "In place",
    "out": "With `out=`",
    "gradient": "Gradients",
    "error": "Error inputs",
}

KIND_NOTES = {
    "forward": "Every sample of every op, with every dtype that the database lists for CPU.",
    "inplace": "The in-place variant of the op (`add_` for `add`), every sample.",
    "out": (
        f"The first {OUT_SAMPLES} samples of every op and dtype, each with `out` of the right shape, `out` "
        "without elements (which the op resizes) and a non-contiguous `out`."
    ),
    "gradient": (
        f"{' and '.join(GRADIENT_DTYPES)}, every sample: gradients of `sum(real(output * cotangent))` with "
        "fixed random cotangents. Samples without a differentiable output are not counted; strides of "
        "gradients are not compared."
    ),
    "error": (
        "Inputs that an op must reject: the device must raise the same type of exception. *identical* says "
        "here that the message is the same too, but for the device's name."
    ),
}

LIMITS = """## What this does not cover

Samples with sparse or nested layouts other than those in `op_db` itself, forward-mode and second-order
gradients, the distribution of random numbers, and the reference decompositions (`python_ref_db`).
"""


def write_document(path: Path, results: Sequence[CaseResult], device: str) -> None:
    """Writes the whole report as Markdown."""
    parts = [HEADER.format(version=torch.__version__, device=device), _headline(results)]
    for family in FAMILIES:
        parts.append("## Ops\n" if family == "ops" else "## Foreach ops\n")
        for kind, title in KIND_TITLES.items():
            rows = rows_by_dtype(results, family, kind)
            if rows:
                parts.append(f"### {title}\n\n{KIND_NOTES[kind]}\n\n{_table(rows)}")
    parts += [_known(), _unexpected(results), _modes(path), LIMITS]
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        parts.append(suites.kept_part(path.read_text(encoding="utf-8")))
    path.write_text("\n".join(part for part in parts if part))


_COMMAND = "python -m tests.conformance.measure_modes"
_SECTIONS = (
    ("Other ways to call an op", "modes", _COMMAND),
    ("Compiled ops", "compiled", f"{_COMMAND} --compiled"),
    ("ONNX", "onnx", "python -m tests.compiler.onnx_files.nodes"),
    (reports.TITLE, reports.BLOCK, reports.COMMAND),
)


def _modes(path: Path) -> str:
    """Returns the sections that another command writes, as they stand in the file."""
    old = path.read_text() if path.exists() else ""
    parts = []
    for title, block, command in _SECTIONS:
        begin, end = f"<!-- begin {block}: written by `{command}` -->", f"<!-- end {block} -->"
        inside = old.partition(begin)[2].partition(end)[0].strip()
        parts.append(f"## {title}\n\n{begin}\n{inside}\n{end}\n")
    return "\n".join(parts)


def _headline(results: Sequence[CaseResult]) -> str:
    lines = [
        "| measured | target | here |",
        "|---|---|---|",
    ]
    ops32 = op_counts(results, "ops", "forward", "float32")
    every = total(rows_by_dtype(results, "ops", "forward").values())
    gradient = total(rows_by_dtype(results, "ops", "gradient").values())
    lines += [
        f"| float32 forward: ops that pass with every sample | all but 5 | {ops32.passed} of {ops32.total} |",
        f"| forward, all dtypes: samples | ≥ 99.5% | {_rate(every)} of {every.counted:,} |",
        f"| gradients: samples | ≥ 99% | {_rate(gradient)} of {gradient.counted:,} |",
    ]
    return "\n".join(lines) + "\n"


def _rate(row: Row) -> str:
    """Rounds down, so that 100% means all."""
    return f"{int(row.rate * 100) / 100:.2f}%"


def _table(rows: dict[str, Row]) -> str:
    lines = [
        "| dtype | passed | random | identical | failed | known | rate | CPU fails | excluded |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    shown = dict(rows) if len(rows) == 1 else {**rows, "**all**": total(rows.values())}
    for dtype, row in shown.items():
        compared = row.passed - row.random
        share = f"{int(1000 * row.identical / compared) / 10:.1f}%" if compared else ""
        cells = [f"{row.passed:,}", f"{row.random:,}", share, f"{row.failed:,}", f"{row.known:,}", _rate(row)]
        lines.append("| " + " | ".join([dtype, *cells, f"{row.cpu_fails:,}", f"{row.excluded:,}"]) + " |")
    return "\n".join(lines) + "\n"


def _known() -> str:
    lines = ["## Known failures\n"]
    if not known_failures.KNOWN_FAILURES:
        lines.append("None.\n")
    else:
        lines += ["| op | kind | dtype | reason |", "|---|---|---|---|"]
        listed = sorted(known_failures.KNOWN_FAILURES.items())
        lines += [f"| `{op}` | {kind} | {dtype} | {reason} |" for (op, kind, dtype), reason in listed]
        lines.append("")
    if known_failures.EXCLUDED:
        lines += ["### Excluded\n", "| op | reason |", "|---|---|"]
        lines += [f"| `{op}` | {reason} |" for op, reason in sorted(known_failures.EXCLUDED.items())]
        lines.append("")
    return "\n".join(lines)


def _unexpected(results: Iterable[CaseResult]) -> str:
    failing = unexpected(results)
    if not failing:
        return ""
    dtypes: dict[tuple[str, str], list[str]] = {}
    for group in sorted(failing):
        dtypes.setdefault((group.op, group.kind), []).append(group.dtype)
    lines = ["## Failures that are not listed\n", "| op | kind | dtypes |", "|---|---|---|"]
    lines += [f"| `{op}` | {kind} | {', '.join(names)} |" for (op, kind), names in dtypes.items()]
    return "\n".join(lines) + "\n"


def write_log(path: Path, results: Iterable[CaseResult]) -> None:
    """Writes every failure: op, kind, dtype, sample, and the whole message."""
    with path.open("w") as log:
        for result in results:
            for kind, tally in result.tallies.items():
                for failure in tally.failures:
                    case = result.case
                    log.write(f"{case.op} {kind} {case.dtype} sample {failure.sample}\n")
                    log.write("".join(f"    {line}\n" for line in failure.message.splitlines()))
