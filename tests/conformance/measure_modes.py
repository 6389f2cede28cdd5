"""`python -m tests.conformance.measure_modes`: each op of the database traced, scripted, captured, …

Asks one sample of each op in each mode of `modes.py`, and writes the counts into docs/conformance.md. Fails
where an op fails that `known_modes.py` does not list, or where one that it lists does not. With `--compiled`
every second op is compiled instead, by each backend of `torch.compile`.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import os
import re
import sys
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from tools.blocks import markdown_table, replace_block

from .cases import dtypes_of, ops, samples
from .known_modes import KNOWN
from .model import Case, CaseResult, CpuFails, Failure, Tally
from .modes import COMPILERS, MODES, check
from .runner import run_cases
from .worker import Order, Setup

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "conformance.md"
LOG_DIRECTORY = ROOT / "build" / "conformance"
BLOCK, COMPILED_BLOCK = "modes", "compiled"
TITLES = {**MODES, **COMPILERS}
# Inductor compiles C++ for each op, which takes seconds: one op of so many.
COMPILED_EVERY = 2
NOTE = (
    "One sample of each op, in float32 where the op has it. What is made of the call runs on values that it "
    "has not seen, and must give what the CPU computes eagerly from them. *Not asked*: the CPU fails in this "
    "mode itself, the op has no tensors to be called with, or, for captures and busy streams, its result "
    "depends on values, for which every device waits."
)
COMPILED_NOTE = (
    "One sample of every second op, in float32 where the op has it, compiled as one graph; it must give what "
    "the CPU computes eagerly. *Not asked*: compiling it for the CPU fails, too, or the op has no tensors to "
    "be called with."
)
# The sample asked is the first of these many that the CPU takes.
TRIED = 3


def serve(connection: Connection, position: ctypes.Array[ctypes.c_char], setup: Setup) -> None:
    """Answer orders until the parent closes the connection: what a worker process runs."""
    log = os.open(setup.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable(sys.stderr)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    while True:
        try:
            order: Order = connection.recv()
        except EOFError:
            return
        died_in = {mode for _, mode in order.skip}
        tallies = {}
        for mode in setup.kinds:
            if mode not in died_in:
                position.value = f"0 {mode}".encode()
                tallies[mode] = ask(mode, order.case, setup.device)
        connection.send(CaseResult(order.case, tallies))


def ask(mode: str, case: Case, device: str) -> Tally:
    """Ask one op in one mode, with the first sample that the CPU takes."""
    info = ops(case.family)[case.op]
    tally = Tally()
    for number, sample in enumerate(samples(info, case.dtype)):
        if number == TRIED:
            break
        try:
            check(mode, info, sample, device)
        except CpuFails:
            continue
        except Exception as error:
            tally.failures.append(Failure(str(number), f"{type(error).__name__}: {error}"))
            return tally
        tally.identical = 1
        return tally
    tally.cpu_fails = 1
    return tally


def cases(pattern: str | None) -> list[Case]:
    """Return each op with float32, or the first dtype that it has."""
    chosen = []
    for name, info in ops("ops").items():
        dtypes = dtypes_of(info)
        if dtypes and (pattern is None or re.search(pattern, name)):
            chosen.append(Case("ops", name, "float32" if "float32" in dtypes else dtypes[0]))
    return chosen


def counts_of(results: Sequence[CaseResult], modes: Sequence[str]) -> list[list[str]]:
    """Return a row of the table for each mode: passed, known, failed, rate, not asked."""
    rows = []
    for mode in modes:
        tallies = [(result.case.op, result.tallies[mode]) for result in results if mode in result.tallies]
        passed = sum(tally.passed for _, tally in tallies)
        failed = [op for op, tally in tallies if tally.failed]
        known = sum((mode, op) in KNOWN for op in failed)
        asked = passed + len(failed)
        rate = f"{int(10000 * passed / asked) / 100:.2f}%" if asked else ""
        not_asked = sum(tally.cpu_fails for _, tally in tallies)
        rows.append([TITLES[mode], str(passed), str(known), str(len(failed) - known), rate, str(not_asked)])
    return rows


def document(results: Sequence[CaseResult], modes: Sequence[str]) -> str:
    """Return the section of docs/conformance.md."""
    is_compiled = not set(modes).isdisjoint(COMPILERS)
    parts = [
        COMPILED_NOTE if is_compiled else NOTE,
        markdown_table(
            ["called how", "passed", "known", "failed", "rate", "not asked"], counts_of(results, modes)
        ),
    ]
    if known := {key: reason for key, reason in KNOWN.items() if key[0] in modes}:
        rows = [[f"`{op}`", mode, reason] for (mode, op), reason in sorted(known.items())]
        parts += ["Known to fail:", markdown_table(["op", "called how", "reason"], rows)]
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print what fails, and write the section."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.measure_modes", description=__doc__)
    parser.add_argument("--ops", metavar="REGEX", help="only ops whose full name matches")
    parser.add_argument("--modes", metavar="LIST", help=f"only these: {','.join(TITLES)}")
    parser.add_argument("--compiled", action="store_true", help=f"compile instead: {','.join(COMPILERS)}")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes (2)")
    parser.add_argument("--no-write", action="store_true", help="leave docs/conformance.md alone")
    parser.add_argument("--device", default=torch._C._get_privateuse1_backend_name())
    options = parser.parse_args(arguments)
    known = COMPILERS if options.compiled else MODES
    modes = tuple(options.modes.split(",")) if options.modes else tuple(known)
    if wrong := [mode for mode in modes if mode not in known]:
        parser.error(f"--modes: {wrong[0]!r} is none of {', '.join(known)}")
    LOG_DIRECTORY.mkdir(parents=True, exist_ok=True)
    setup = Setup(options.device, modes, str(LOG_DIRECTORY / "modes.log"))
    chosen = cases(options.ops)
    if options.compiled and not options.ops:
        chosen = chosen[::COMPILED_EVERY]
    number_done = 0

    def show(result: CaseResult) -> None:
        nonlocal number_done
        number_done += 1
        print(f"\r{number_done}/{len(chosen)} {result.case.op:50.50}", end="", file=sys.stderr, flush=True)

    results = run_cases(chosen, setup, options.jobs, show, target=serve)
    print(file=sys.stderr)
    return conclude(results, modes, is_whole=not (options.ops or options.modes), writes=not options.no_write)


def conclude(results: list[CaseResult], modes: Sequence[str], *, is_whole: bool, writes: bool) -> int:
    """Print what fails and what is listed in vain; write the section; return the exit status."""
    failing: dict[tuple[str, str], str] = {}
    for result in results:
        # A process that died did so in the mode that its position names.
        for failure in result.tallies.pop("forward", Tally()).failures:
            result.tallies[failure.sample] = Tally(failures=[failure])
        for mode, tally in result.tallies.items():
            if tally.failed:
                failing[mode, result.case.op] = tally.failures[0].message
    asked = {(mode, result.case.op) for result in results for mode in modes}
    unlisted = [key for key in failing if key not in KNOWN]
    outdated = [key for key in KNOWN if key in asked and key not in failing]
    for mode, op in unlisted:
        print(f"FAILED {op} {mode}: {failing[mode, op].partition(chr(10))[0][:200]}")
    for mode, op in outdated:
        print(f"LISTED BUT NOT FAILING {op} {mode}: delete it from known_modes.py")
    for row in counts_of(results, modes):
        print(", ".join(row))
    log = "".join(f"{op} {mode}\n    {message}\n" for (mode, op), message in failing.items())
    LOG_DIRECTORY.mkdir(parents=True, exist_ok=True)
    (LOG_DIRECTORY / "modes_failures.log").write_text(log, encoding="utf-8")
    if is_whole and writes:
        text = DOCUMENT.read_text(encoding="utf-8")
        block = BLOCK if set(modes).isdisjoint(COMPILERS) else COMPILED_BLOCK
        DOCUMENT.write_text(replace_block(text, block, document(results, modes)), encoding="utf-8")
    return 1 if unlisted or outdated else 0


if __name__ == "__main__":
    sys.exit(main())
