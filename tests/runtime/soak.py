"""`python -m tests.runtime.soak --seconds 3600 --write-docs`: random programs for as long as one likes."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from benchmarks._common import machine, versions
from tools.blocks import has_block, markdown_table, replace_block

from .fleet import MEMORY, NUM_CHAOS, Fleet, ProgramError
from .programs import SEEDS_PER_CHAOS, STEPS_PER_PROGRAM, run_seed

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
FAILURES = Path(__file__).resolve().parents[2] / "build" / "stateful"
COMMAND = "python -m tests.runtime.soak"
TITLE = "# Reliability\n\nWritten by the commands named in each section.\n"
SUBJECT = "stateful"


@dataclass
class Outcome:
    """What a run came to."""

    first_seed: int
    seconds: float = 0.0
    num_programs: int = 0
    num_steps: int = 0
    num_diverged: int = 0
    failed_seeds: list[int] = field(default_factory=list)


def run(seconds: float, seed: int, console: Console) -> Outcome:
    """Run seed after seed, with a line that says how far it is; failures are kept in build/stateful."""
    outcome = Outcome(seed)
    began = time.monotonic()
    columns = (
        TextColumn(
            "seed {task.fields[seed]}: {task.fields[programs]:,} programs, {task.fields[steps]:,} steps,"
        ),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
    )
    with Fleet(seed // SEEDS_PER_CHAOS) as fleet, Progress(*columns, console=console) as progress:
        line = progress.add_task("", seed=seed, programs=0, steps=0, failed=0)
        while (elapsed := time.monotonic() - began) < seconds:
            try:
                run_seed(seed, fleet)
            except ProgramError as error:
                outcome.failed_seeds.append(seed)
                FAILURES.mkdir(parents=True, exist_ok=True)
                (FAILURES / f"{seed}.txt").write_text(str(error))
                console.print(f"--stateful-seed {seed} failed: see build/stateful/{seed}.txt")
            seed += 1
            failed = len(outcome.failed_seeds)
            progress.update(
                line, seed=seed, programs=fleet.num_programs, steps=fleet.num_steps, failed=failed
            )
            if not console.is_terminal and seed % 50 == 0:
                console.print(f"{elapsed:.0f} s, {fleet.num_programs:,} programs, {failed} failed")
        outcome.num_programs, outcome.num_steps = fleet.num_programs, fleet.num_steps
        outcome.num_diverged = fleet.num_diverged
    outcome.seconds = time.monotonic() - began
    return outcome


def memory_gib() -> float:
    """Return the machine's memory in GiB."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def as_markdown(outcome: Outcome) -> str:
    """Return what docs/reliability.md says of a run."""
    modes = f"auto, blocking, chaos ({NUM_CHAOS} processes; new seeds after every {SEEDS_PER_CHAOS} seeds)"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    rows = [
        ["seconds", f"{outcome.seconds:,.0f}"],
        ["programs", f"{outcome.num_programs:,}, of at most {STEPS_PER_PROGRAM} steps"],
        ["steps, each run in every process", f"{outcome.num_steps:,}"],
        ["launch modes", modes],
        ["devices", f"2, of {MEMORY} each"],
        ["first seed", str(outcome.first_seed)],
        ["programs that ran out of memory in some modes only", f"{outcome.num_diverged:,}"],
        ["failures", str(len(outcome.failed_seeds))],
    ]
    return (
        "## Random programs\n\n"
        "Programs over two devices, their streams, events, graphs and pinned memory. After every step the "
        "statistics must equal a model's and no two live blocks may overlap; whenever the host has waited, "
        "and at the end, contents must equal a model's; all launch modes must end with the same bits. Under "
        "`blocking` each choice of the allocator is foreseen. A program that runs out of memory in some "
        "modes only (freed memory that another stream still uses is not free yet) is checked in each mode, "
        "not between them.\n\n"
        f"Run {datetime.now(timezone.utc).date().isoformat()} with `{COMMAND}` on {machine()}, {cores} of "
        f"the cores used, {memory_gib():.0f} GiB; {versions()}.\n\n" + markdown_table(["", "this run"], rows)
    )


def write_document(outcome: Outcome) -> None:
    """Write the section of docs/reliability.md."""
    text = DOCUMENT.read_text() if DOCUMENT.exists() else TITLE
    if not has_block(text, SUBJECT):
        text += f"\n<!-- begin {SUBJECT}: written by {COMMAND} --write-docs -->\n<!-- end {SUBJECT} -->\n"
    DOCUMENT.write_text(replace_block(text, SUBJECT, as_markdown(outcome)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 1 if a program failed."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="the first seed (default: another one each time)")
    parser.add_argument("--write-docs", action="store_true", help="write the result into docs/reliability.md")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # as the workers do; the report says how many
    console = Console()
    seed = secrets.randbelow(1 << 30) if options.seed is None else options.seed
    outcome = run(options.seconds, seed, console)
    console.print(as_markdown(outcome), markup=False)
    if options.write_docs:
        write_document(outcome)
    return 1 if outcome.failed_seeds else 0


if __name__ == "__main__":
    sys.exit(main())
