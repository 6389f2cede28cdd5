"""`python -m tests.conformance`: runs the operator database on loom and writes docs/conformance.md."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .cases import enumerate_cases
from .model import FAMILIES, KINDS, NO_DTYPE, STREAMS, Case, CaseResult, Group, Tally
from .report import KIND_TITLES, write_document, write_log
from .runner import run_cases
from .summary import op_counts, rows_by_dtype, stale, total, unexpected
from .worker import Setup

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "conformance.md"
LOG_DIRECTORY = ROOT / "build" / "conformance"
LISTED = 40
MESSAGE_CHARACTERS = 160


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line; a choice that does not exist is an error that lists those that do."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument(
        "--ops", metavar="REGEX", help="only ops whose full name matches (search, not full match)"
    )
    parser.add_argument("--dtypes", metavar="LIST", help="only these, separated by commas: float32,int64")
    parser.add_argument("--kinds", metavar="LIST", help=f"only these: {','.join(KINDS)}")
    parser.add_argument("--families", metavar="LIST", help=f"only these: {','.join(FAMILIES)}")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes (2)")
    parser.add_argument("--no-write", action="store_true", help="leave docs/conformance.md alone")
    parser.add_argument("--limit", type=int, help="at most so many samples of each kind per case")
    parser.add_argument(
        "--stream", choices=STREAMS, default="default", help="side: each sample is queued to a worker"
    )
    parser.add_argument("--device", default=torch._C._get_privateuse1_backend_name(), help="what to examine")
    parser.add_argument(
        "--on-cuda",
        action="store_true",
        help="only dtypes that the database lists for CUDA, too: a GPU refuses the others under that name",
    )
    parser.add_argument("--counts", type=Path, help="write what passed, failed and is known there, as JSON")
    options = parser.parse_args(arguments)
    chosen = (options.ops, options.dtypes, options.kinds, options.families, options.limit)
    options.partial = any(chosen) or options.stream != "default"
    options.kinds = _choices(parser, "--kinds", options.kinds, KINDS)
    options.families = _choices(parser, "--families", options.families, FAMILIES)
    cases = enumerate_cases(options.families, on_cuda=options.on_cuda or options.device == "cuda")
    known_dtypes = sorted({case.dtype for case in cases})
    options.dtypes = _choices(parser, "--dtypes", options.dtypes, known_dtypes)
    options.cases = [case for case in cases if _selected(case, options)]
    if not options.cases:
        parser.error("no op is selected")
    return options


def _choices(
    parser: argparse.ArgumentParser, name: str, given: str | None, known: Sequence[str]
) -> tuple[str, ...]:
    if given is None:
        return tuple(known)
    chosen = tuple(given.split(","))
    if wrong := [choice for choice in chosen if choice not in known]:
        parser.error(f"{name}: {wrong[0]!r} is none of {', '.join(known)}")
    return chosen


def _selected(case: Case, options: argparse.Namespace) -> bool:
    if options.ops and not re.search(options.ops, case.op):
        return False
    if case.dtype == NO_DTYPE:
        return "error" in options.kinds and NO_DTYPE in options.dtypes
    return case.dtype in options.dtypes and options.kinds != ("error",)


def run(options: argparse.Namespace, console: Console) -> list[CaseResult]:
    """Runs the selected cases under a progress bar."""
    LOG_DIRECTORY.mkdir(parents=True, exist_ok=True)
    workers_log = LOG_DIRECTORY / "workers.log"
    workers_log.write_text("")
    setup = Setup(options.device, options.kinds, str(workers_log), options.limit, options.stream)
    columns = (
        TextColumn("{task.description:32.32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
    )
    failed = 0
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("starting", total=len(options.cases), failed=0)

        def show(result: CaseResult) -> None:
            nonlocal failed
            failed += sum(tally.failed for tally in result.tallies.values())
            progress.update(bar, advance=1, description=str(result.case), failed=failed)

        return run_cases(options.cases, setup, options.jobs, show)


def conclude(options: argparse.Namespace, results: list[CaseResult], console: Console) -> int:
    """Prints what came out; returns the exit code."""
    found = {}
    table = Table("kind", "passed", "failed", "known", "rate", "CPU fails", "excluded")
    for family in options.families:
        for kind, title in KIND_TITLES.items():
            row = total(rows_by_dtype(results, family, kind).values())
            if row.counted or row.cpu_fails or row.excluded:
                counts = (row.passed, row.failed, row.known, f"{row.rate:.3f}%", row.cpu_fails, row.excluded)
                table.add_row(f"{family}: {title}", *map(str, counts))
                found[f"{family}: {title}"] = (row.passed, row.failed, row.known)
    console.print(table)
    if options.counts is not None:
        options.counts.write_text(json.dumps(found), encoding="utf-8")
    ops32 = op_counts(results, "ops", "forward", "float32")
    console.print(f"float32 forward: {ops32.passed} of {ops32.total} ops pass with every sample")
    failing, outdated = unexpected(results), stale(results, options.families)
    _print_failures(failing, console)
    for line in outdated:
        console.print(f"LISTED BUT NOT FAILING {line}: delete it from known_failures.py", markup=False)
    return 1 if failing or outdated else 0


def _print_failures(failing: dict[Group, Tally], console: Console) -> None:
    """Prints a line for each op and kind, with the first message; the log has all of them."""
    dtypes: dict[tuple[str, str], list[str]] = {}
    for group in failing:
        dtypes.setdefault((group.op, group.kind), []).append(group.dtype)
    for (op, kind), names in list(dtypes.items())[:LISTED]:
        tallies = [failing[Group(op, kind, dtype)] for dtype in names]
        first = tallies[0].failures[0]
        message = first.message.partition("\n")[0][:MESSAGE_CHARACTERS]
        counts = f"{sum(tally.failed for tally in tallies)} of {sum(tally.counted for tally in tallies)}"
        where = f"{op} {kind} {','.join(names)}"
        console.print(f"FAILED {where}: {counts}; sample {first.sample}: {message}", markup=False)
    if len(dtypes) > LISTED:
        console.print(f"… and {len(dtypes) - LISTED} more")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    console = Console()
    try:
        torch.empty(1, device=options.device)
    except (RuntimeError, AssertionError) as error:
        console.print(f"no device {options.device!r}: {error}", markup=False)
        return 2
    started = time.monotonic()
    results = run(options, console)
    write_log(LOG_DIRECTORY / "failures.log", results)
    exit_code = conclude(options, results, console)
    if options.partial and not options.no_write:
        console.print("only part was run: docs/conformance.md is left alone")
    elif not options.no_write:
        write_document(DOCUMENT, results, options.device)
        console.print(f"wrote {DOCUMENT.relative_to(ROOT)}")
    console.print(
        f"{time.monotonic() - started:.0f} s; failures in {LOG_DIRECTORY.relative_to(ROOT)}/failures.log"
    )
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
