"""What the test suites of other projects take under `loom run`, beside the CPU: user time, in turns.

    python -m benchmarks.suites FOLDER test_optim.py -k "sgd or lamb" --device-variable TORCH_DEVICE

runs `pytest FILES` in FOLDER with the variable set to cpu, without torch-loom, and under `loom run` with it
set to cuda. A suite that does less where the variable is "cpu" takes `--cpu cpu:0`. The files are not in
this repository. A first run on each finds the tests that pass on both, and only these are timed: a suite has
tests that want an accelerator. Three kinds of runs say where the time goes: one that only collects the tests
(imports), one that runs them, and one that runs them twice in one process (the second time no call is the
first of its shape). A fourth runs them under `loom run` with this machine's clock, which estimates no times.
`--once` leaves all but the second out.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import _selected_tests
from benchmarks._common import parser, write_docs, write_json
from tools.blocks import markdown_table
from torch_loom import config

ROOT = Path(__file__).parents[1]
ROUNDS, QUICK_ROUNDS = 5, 1
_PASSED = re.compile(r"^=*\s*(?:\d+ failed, )?(\d+) passed", re.MULTILINE)
_COLLECTED = re.compile(r"(\d+)(?:/\d+)? tests? collected|(\d+) tests collected")
COLLECT, ONCE, TWICE, UNTIMED = "collect", "once", "twice", "without estimates"
# The kinds of runs: arguments of pytest, and whether the CPU has one.
KINDS = {COLLECT: True, ONCE: True, TWICE: True, UNTIMED: False}


@dataclass(frozen=True)
class Run:
    """What one run of a suite took.

    Attributes:
        user_seconds: user time of the process and its children.
        passed: how many tests passed; of a run that only collects, 0.
    """

    user_seconds: float
    passed: int


class SuiteError(RuntimeError):
    """A suite did not run: no test passed."""


def environment(options: argparse.Namespace, device: str, kind: str) -> dict[str, str]:
    """Returns the environment of a run on a device, ``cpu`` or ``cuda``."""
    ours = (config.ENV_PREFIX, "TORCH_DEVICE_BACKEND_AUTOLOAD")
    result = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    result |= dict.fromkeys(options.device_variable, options.cpu if device == "cpu" else device)
    result["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    if device == "cpu":
        result["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    if kind == UNTIMED:
        result["TORCH_LOOM_CLOCK"] = "wall"
    return result


def command(options: argparse.Namespace, device: str, kind: str, *select: str) -> list[str]:
    """Returns the command of a run; ``select`` are options of the plugin that chooses tests."""
    loom = ["-m", "torch_loom.tools.cli", "run", "--devices", str(options.devices)]
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", *options.pytest]
    # Values stand behind "=": a path that stands alone moves the root of the tests.
    pytest += ["-p", _selected_tests.__name__, *select]
    chosen = ["-k", options.keyword] if options.keyword else []
    more = {COLLECT: ["--collect-only"], TWICE: ["--keep-duplicates", *options.files]}.get(kind, [])
    start = [options.python, *(loom if device == "cuda" else [])]
    return [*start, *pytest, *chosen, *more, *options.files]


def run(options: argparse.Namespace, device: str, kind: str, *select: str) -> Run:
    """Runs a suite once; ``select`` are options of the plugin that chooses tests.

    Raises:
        SuiteError: no test passed, or none was collected.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(
        command(options, device, kind, *select),
        env=environment(options, device, kind),
        cwd=options.folder,
        capture_output=True,
        text=True,
        timeout=options.timeout,
    )
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    found = (_COLLECTED if kind == COLLECT else _PASSED).search(done.stdout)
    if found is None:
        raise SuiteError(f"no test ran ({device}, {kind}):\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return Run(seconds, 0 if kind == COLLECT else int(found[1]))


def passing(options: argparse.Namespace, folder: Path) -> dict[str, set[str]]:
    """Returns the names of the tests that pass on each device, and writes those of both to ``folder``/both.

    Raises:
        SuiteError: no test passes on both.
    """
    found = {}
    for device in ("cpu", "cuda"):
        run(options, device, ONCE, f"--passed-to={folder / device}")
        found[device] = set((folder / device).read_text(encoding="utf-8").splitlines())
    both = found["cpu"] & found["cuda"]
    if not both:
        raise SuiteError(f"no test passes on both: {len(found['cpu'])} on cpu, {len(found['cuda'])} on cuda")
    (folder / "both").write_text("".join(f"{name}\n" for name in sorted(both)), encoding="utf-8")
    return found


def measure(options: argparse.Namespace, rounds: int, *select: str) -> dict[tuple[str, str], list[Run]]:
    """Returns the runs of each device and kind, made in turns; the first of a round changes."""
    chosen = [
        (device, kind)
        for kind, on_cpu in KINDS.items()
        for device in ("cpu", "cuda")
        if (on_cpu or device != "cpu") and not (options.once and kind != ONCE)
    ]
    found: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for number in range(rounds):
        for device, kind in chosen if number % 2 else reversed(chosen):
            found[device, kind].append(run(options, device, kind, *select))
            last = found[device, kind][-1]
            print(f"{device} {kind}: {last.user_seconds:.1f} s user, {last.passed} passed", flush=True)
    return found


@dataclass(frozen=True)
class Parts:
    """Where the user time of a suite goes, in seconds.

    Attributes:
        imports: until the tests are collected.
        first: what calls take longer the first time.
        again: the tests, run once more in the same process.
    """

    imports: float
    first: float
    again: float


def parts(medians: Mapping[str, float]) -> Parts:
    """Returns the parts of a suite from the medians of its kinds of runs."""
    again = medians[TWICE] - medians[ONCE]
    return Parts(medians[COLLECT], medians[ONCE] - medians[COLLECT] - again, again)


def docs_body(
    options: argparse.Namespace,
    passed: Mapping[str, set[str]],
    found: Mapping[tuple[str, str], Sequence[Run]],
    rounds: int,
) -> str:
    """Returns the section for docs/performance.md; ``passed`` are the tests that pass on each device."""
    medians = {each: statistics.median(run.user_seconds for run in runs) for each, runs in found.items()}
    rows = [("**all**", medians["cpu", ONCE], medians["cuda", ONCE])]
    estimates = ""
    if not options.once:
        cpu, cuda = (
            parts({kind: medians[device, kind] for kind in (COLLECT, ONCE, TWICE)})
            for device in ("cpu", "cuda")
        )
        seconds = medians["cuda", ONCE] - medians["cuda", UNTIMED]
        estimates = f" Estimates of the chip's times are {seconds:.1f} s of it."
        rows = [
            ("imports", cpu.imports, cuda.imports),
            ("what first calls take more", cpu.first, cuda.first),
            ("the tests again", cpu.again, cuda.again),
            *rows,
        ]
    lines = [_line(*row) for row in rows]
    counts = ", ".join(f"{len(passed[device])} pass on {device}" for device in ("cpu", "cuda"))
    both = len(passed["cpu"] & passed["cuda"])
    chosen = f' -k "{options.keyword}"' if options.keyword else ""
    note = (
        f"`{' '.join(options.files)}{chosen}`: {counts}. Seconds of user time for the {both} that pass on "
        f"both, medians of {rounds} runs in turns.{estimates}"
    )
    return f"{note}\n\n{markdown_table(['part', 'cpu s', 'loom run s', 'more', 'ratio'], lines)}"


def _line(name: str, cpu: float, cuda: float) -> list[str]:
    ratio = f"{cuda / cpu:.2f}" if min(cpu, cuda) > 0.1 else "-"
    return [name, f"{cpu:.1f}", f"{cuda:.1f}", f"{cuda - cpu:+.1f}", ratio]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    options = parser("User time of a test suite under `loom run` beside the CPU.")
    options.add_argument("folder", type=Path, help="where pytest runs")
    options.add_argument("files", nargs="+", help="its files of tests")
    options.add_argument("-k", dest="keyword", help="only tests that match, as pytest's -k")
    options.add_argument("--title", help="of the section in docs/performance.md (the first file's name)")
    options.add_argument(
        "--python", default=sys.executable, help="the interpreter, with what the tests import"
    )
    options.add_argument("--devices", type=int, default=1)
    options.add_argument(
        "--device-variable",
        action="append",
        default=[],
        metavar="NAME",
        help="a variable by which the suite takes its device, as TORCH_DEVICE",
    )
    options.add_argument(
        "--cpu", default="cpu", help="what these variables say of the CPU (default: %(default)s)"
    )
    options.add_argument("--pytest", type=shlex.split, default=[], help="more arguments of pytest")
    options.add_argument(
        "--once", action="store_true", help="without the parts: each suite runs once a round"
    )
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--timeout", type=int, default=3600, help="seconds for a run")
    options.add_argument(
        "--ratio", type=float, default=1.2, help="the target of --check (default: %(default)s)"
    )
    return options.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    options = parse(arguments)
    rounds = QUICK_ROUNDS if options.quick else options.rounds
    with tempfile.TemporaryDirectory() as folder:
        passed = passing(options, Path(folder))
        found = measure(options, rounds, f"--only-of={Path(folder) / 'both'}")
    body = docs_body(options, passed, found, rounds)
    print(body)
    if options.json:
        seconds = {
            f"{device} {kind}": [run.user_seconds for run in runs] for (device, kind), runs in found.items()
        }
        write_json(
            options.json, {"files": options.files, "keyword": options.keyword, "user_seconds": seconds}
        )
    if options.write_docs:
        title = options.title or options.files[0]
        subject = f"suite-{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}"
        write_docs(subject, f"Test suite: {title}", body, f"python -m benchmarks.suites {options.files[0]}")
    once = {
        device: statistics.median(run.user_seconds for run in found[device, ONCE])
        for device in ("cpu", "cuda")
    }
    ratio = once["cuda"] / once["cpu"]
    missed = ratio > options.ratio
    if missed:
        print(f"missed: {ratio:.2f} times the CPU's, at most {options.ratio}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
