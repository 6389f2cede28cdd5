"""`python -m tests.conformance.suites FOLDER`: test files of other projects, unmodified, in CUDA's name.

The files are not in this repository. Each runs as `loom run -m pytest FILE`, in a process of its own, and
each failure is listed in docs/conformance.md with its reason: what its message says, or `known_suites.py`.
`--reports` takes what such runs have written (`--junit-xml`) instead: a large file can run in pieces.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.blocks import markdown_table

from .known_suites import FAILS_ON_THE_CPU, KNOWN, KNOWN_GROUPS, NOT_RUN, NVIDIA, OLDER_PYTORCH

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "conformance.md"
HEADING = "## In CUDA's name"
INTRODUCTION = (
    "Test files of other projects, unmodified, under `loom run -m pytest`. Each section is written by\n"
    "`python -m tests.conformance.suites FOLDER --title TITLE`, which takes the folder of their sources.\n"
    "*needs* counts failures of tests that need what is not here: a compiled CUDA kernel, Triton, a library\n"
    "of NVIDIA's, a package, the network, a larger device, or the PyTorch that they were written for. The\n"
    "rate is passed / (passed + failed), without those.\n"
)
MESSAGE_CHARACTERS = 160
_WHOLE = "the file"  # in the place of a test
# The folders of an absolute path: where the tests were is nobody's concern.
_FOLDERS = re.compile(r"(?<![\w:/.])(?:/[\w.+-]+)+/(?=[\w.+-])")

# What a test needs that is not here, by the text of its failure.
NEEDS = {
    "the network": r"ConnectionError|offline|connect to|huggingface\.co|Max retries|LocalEntryNotFound",
    "the SciPy that it was written for": r"Parameter Nx=0 is not a positive integer",
    "a CUDA kernel or Triton": (
        r"mta_called|nvcc|\.cu\b|CUDA_HOME|libtorch_cuda|ninja is required"
        r"|xFormers wasn't build with CUDA support|The operator '(?!aten::)\w+::\w+' is not implemented"
        r"|[Tt]riton (is )?not (available|installed)|working triton installation|No module named 'triton'"
    ),
    NVIDIA: (r"NotApplicableError|[Nn]ccl|NCCL|cu[Dd][Nn][Nn]|cudart|nvml|NVML|cublas|MIOPEN|_cusparselt"),
    "a package that is not installed": r"ModuleNotFoundError|No module named",
    # It has no named tensors, other names (those of torch.cuda are this project's), and sets the executor of
    # TorchScript where the test file is the program.
    OLDER_PYTORCH: (
        r"keyword argument 'names'|names=tuple|GRAPH_EXECUTOR must be set"
        r"|cannot import name '\w+' from 'torch\.(?!cuda\b)"
        r"|module 'triton\.tools' has no attribute 'experimental_descriptor'"
    ),
}
# Of one file alone, by its name: texts that elsewhere would hide a failure of this project's.
NEEDS_OF_FILES = {
    # The helper that makes the samples returns more values.
    "test_vmap.py": {OLDER_PYTORCH: r"Exception: too many values to unpack"},
}
# They name NCCL in each traceback, as the name of the backend: `KNOWN` says what they need of it.
NAME_THE_BACKEND = re.compile(
    r"test_(c10d|fsdp|fully_shard|replicate|dtensor|device_mesh)|pytorch_distributed"
)
# What a file sets where it is the program, which it is not under pytest.
ENVIRONMENTS = {
    "test_cuda_expandable_segments.py": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
}


@dataclass
class Failure:
    """One test that failed: its name, the first line of its message, what it needs and why, if known."""

    test: str
    message: str
    needs: str | None
    reason: str = ""


@dataclass
class FileResult:
    """What one file of tests came to."""

    name: str
    passed: int = 0
    skipped: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def needing(self) -> int:
        return sum(failure.needs is not None for failure in self.failures)

    @property
    def failed(self) -> int:
        return len(self.failures) - self.needing


def what_it_needs(text: str, file: str = "") -> str | None:
    """Return what a failed test of a file needs that is not here, read from its message."""
    patterns = [*NEEDS.items(), *NEEDS_OF_FILES.get(file, {}).items()]
    if NAME_THE_BACKEND.match(file):
        patterns = [(need, pattern) for need, pattern in patterns if need != NVIDIA]
    return next((need for need, pattern in patterns if re.search(pattern, text)), None)


def first_line(message: str) -> str:
    """Return the first line that says something, shortened, with files by their names alone."""
    lines = [_FOLDERS.sub("", line.strip()) for line in message.splitlines() if line.strip()]
    return lines[0][:MESSAGE_CHARACTERS] if lines else "no message"


def read_reports(reports: Iterable[Path]) -> list[FileResult]:
    """Return what JUnit reports of pytest's say, by file; of a test in several, the last one counts."""
    found: dict[str, dict[str, Failure | bool]] = {}
    for report in reports:
        seen: dict[str, dict[str, Failure | bool]] = {}
        for case in ElementTree.parse(report).iter("testcase"):
            if case.get("name") is None:  # of a run that was interrupted
                continue
            module, _, group = (case.get("classname") or "").rpartition(".")
            # Of a function the module alone, behind its folders where tests run in another one.
            if not module or group.startswith("test_"):
                module, group = case.get("classname") or "", ""
            file, test = f"{module.rpartition('.')[2]}.py", f"{group}.{case.get('name')}"
            if not case.get("classname"):  # what could not be imported
                file, test = f"{case.get('name')}.py", _WHOLE
            outcome = _outcome(case, file, test)
            # A failure and an error of its teardown are two cases.
            if not isinstance(seen.setdefault(file, {}).get(test), Failure):
                seen[file][test] = outcome
        for file, outcomes in seen.items():
            found.setdefault(file, {}).update(outcomes)
    return [_counted(file, outcomes) for file, outcomes in found.items()]


def _outcome(case: ElementTree.Element, file: str, test: str) -> Failure | bool:
    """Return how a test failed, or whether it was run."""
    problem = case.find("failure")
    if problem is None:
        problem = case.find("error")
    if problem is None:
        return case.find("skipped") is None
    message = problem.get("message") or problem.text or ""
    # The last lines have the error itself, those marked E also what led to it; tracebacks name many things.
    lines = (problem.text or "").splitlines()
    errors = [line for line in lines if line.startswith("E ")]
    told = (what_it_needs("\n".join([message, *errors, *lines[-15:]]), file), "")
    needs, reason = KNOWN.get((file, test), KNOWN_GROUPS.get((file, test.partition(".")[0]), told))
    if test == _WHOLE and errors:
        message = errors[-1].removeprefix("E")  # pytest's own says that the file was not collected
    return Failure(test, first_line(message), needs, reason)


def _counted(file: str, outcomes: dict[str, Failure | bool]) -> FileResult:
    for (of_file, test), reason in NOT_RUN.items():
        if of_file == file:
            outcomes.setdefault(test, Failure(test, reason, None, reason))
    failures = [outcome for outcome in outcomes.values() if isinstance(outcome, Failure)]
    passed = sum(outcome is True for outcome in outcomes.values())
    return FileResult(file, passed, len(outcomes) - passed - len(failures), failures)


def command(options: argparse.Namespace, file: Path, place: str, report: Path) -> list[str]:
    """Return the command line for one file, of which `place` is run."""
    run = [options.python, "-m", "torch_loom.tools.cli", "run"]
    run += ["--devices", str(options.devices), "--memory", options.memory]
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", f"--junit-xml={report}"]
    left_out = [test.rpartition(".")[2] for of_file, test in NOT_RUN if of_file == file.name]
    keywords = [f"({options.keyword})"] if options.keyword else []
    keywords += [f"not ({' or '.join(left_out)})"] if left_out else []
    chosen = ["-k", " and ".join(keywords)] if keywords else []
    return [*run, *pytest, *chosen, *options.pytest, f"--timeout={options.test_timeout}", place]


def run_again(options: argparse.Namespace, file: Path, first: FileResult) -> FileResult:
    """Run the tests that failed again, each in a process of its own: others may have left memory behind."""
    alone = argparse.Namespace(**{**vars(options), "again": False, "keyword": None})
    kept = []
    for failure in first.failures:
        if failure.needs is None and (file.name, failure.test) not in NOT_RUN:
            names = [] if failure.test == _WHOLE else [name for name in failure.test.split(".", 1) if name]
            if run_file(alone, file, "::".join([str(file), *names])).passed == 1:
                first.passed += 1
                continue
        kept.append(failure)
    first.failures = kept
    return first


def run_file(options: argparse.Namespace, file: Path, place: str = "") -> FileResult:
    """Run one file of tests, or one test of it; a process without a report counts as one failure."""
    result = _run_once(options, file, place or str(file))
    return run_again(options, file, result) if options.again else result


def _run_once(options: argparse.Namespace, file: Path, place: str) -> FileResult:
    places = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(place for place in places if place)}
    env |= ENVIRONMENTS.get(file.name, {})
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        try:
            done = subprocess.run(
                command(options, file, place, report),
                cwd=options.cwd or file.parent,
                env=env,
                capture_output=True,
                text=True,
                timeout=options.timeout,
            )
        except subprocess.TimeoutExpired:
            # Threads that a test has left may outlast all tests.
            if report.exists():
                return next(iter(read_reports([report])), FileResult(file.name))
            return FileResult(file.name, failures=[Failure(_WHOLE, f"over {options.timeout} s", None)])
        if report.exists():
            return next(iter(read_reports([report])), FileResult(file.name))
        reason = f"no report, exit status {done.returncode}: {first_line(done.stderr[-400:])}"
        return FileResult(
            file.name, failures=[Failure(_WHOLE, reason, what_it_needs(done.stderr, file.name))]
        )


def file_of(options: argparse.Namespace, result: FileResult) -> Path:
    """Return the file of tests that a report is of: the one of its name that has the tests that failed.

    A report has no paths, and its modules are named from a root that only the run knew.
    """
    named = sorted(options.folder.rglob(result.name), key=lambda file: (len(file.parts), file))
    tests = [failure.test.partition(".") for failure in result.failures]

    def has_tests(file: Path) -> bool:
        text = file.read_text(encoding="utf-8", errors="replace")
        classes = {"", *re.findall(r"\bclass (\w+)", text)}
        methods = tuple(re.findall(r"\bdef (test\w+)", text))
        # Names of tests that were made for one device are longer by it.
        return all(
            {group, re.sub("(CPU|CUDA)$", "", group)} & classes and test.startswith(methods)
            for group, _, test in tests
            if group != _WHOLE
        )

    found = [file for file in named if has_tests(file)] or named
    at_top = [file for file in found if file.parent == options.folder]
    if len(found) > 1 and not at_top:
        places = ", ".join(str(file.parent.relative_to(options.folder)) for file in found)
        raise SystemExit(
            f"{result.name} is in {places} of {options.folder}: give the folder of the tests run"
        )
    return next(iter([*at_top, *found]), options.folder / result.name)


def twin_on_the_cpu(test: str) -> str:
    """Return the name of the same test for the device cpu; of a test without a device, its own."""
    before, device, after = test.replace("CUDA.", "CPU.").rpartition("_cuda")
    return f"{before}_cpu{after}" if device else after


def mark_failures_of_the_cpu(options: argparse.Namespace, result: FileResult) -> None:
    """Say of each unexplained failure whether the test fails on the device cpu without torch-loom, too."""
    unexplained = [failure for failure in result.failures if failure.needs is None and not failure.reason]
    if not unexplained:
        return
    file = file_of(options, result)
    names = {re.sub(r"\[.*", "", twin_on_the_cpu(failure.test)).rpartition(".")[2] for failure in unexplained}
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        pytest = [options.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts="]
        plugin = ["--noconftest", "-p", "tests.conformance.suite_plugin", f"--junit-xml={report}"]
        chosen = ["-k", " or ".join(sorted(names)), f"--timeout={options.test_timeout}", file.name]
        run = [*pytest, *plugin, *chosen]
        try:
            done = subprocess.run(
                run, cwd=file.parent, env=env, capture_output=True, text=True, timeout=options.timeout
            )
            said = first_line(done.stderr[-400:])
        except subprocess.TimeoutExpired:
            said = f"over {options.timeout} s"
        if not report.exists():
            print(f"{result.name} was not run on the device cpu: {said}", file=sys.stderr)
        found = read_reports([report]) if report.exists() else []
    failed = {failure.test for again in found for failure in again.failures}
    for failure in unexplained:
        if twin_on_the_cpu(failure.test) in failed:
            failure.needs, failure.reason = FAILS_ON_THE_CPU


def section(title: str, results: Sequence[FileResult]) -> str:
    """Return the section of the document: a table of the files, and every failure."""
    rows = [
        [result.name, *(str(n) for n in (result.passed, result.failed, result.needing, result.skipped))]
        for result in results
        if result.passed or result.failures or result.skipped  # none of a share may be in a file
    ]
    passed, failed = sum(result.passed for result in results), sum(result.failed for result in results)
    needing, skipped = sum(result.needing for result in results), sum(result.skipped for result in results)
    rows.append([f"**all: {rate(passed, failed)}**", str(passed), str(failed), str(needing), str(skipped)])
    parts = [f"### {title}", "", markdown_table(["file", "passed", "failed", "needs", "skipped"], rows), ""]
    failures = [(result.name, failure) for result in results for failure in result.failures]
    if failures:
        listed = [
            [
                f"`{file if failure.test == _WHOLE else failure.test}`",
                failure.needs or "",
                failure.reason or f"`{failure.message.replace('`', chr(39))}`",
            ]
            for file, failure in failures
        ]
        parts += [markdown_table(["failed", "needs", "says"], listed), ""]
    return "\n".join(parts)


def rate(passed: int, failed: int) -> str:
    """Return a share in percent, rounded down, so that 100% means all."""
    return f"{int(10000 * passed / max(passed + failed, 1)) / 100:.2f}%"


def kept_part(text: str) -> str:
    """Return what this command wrote of the document, which the operator run keeps."""
    return text[text.index(HEADING) :] if HEADING in text else ""


def with_section(text: str, title: str, body: str) -> str:
    """Return the document with a section put in the place of the one of this title, or at the end."""
    before = text[: text.index(HEADING)] if HEADING in text else text.rstrip() + "\n\n"
    sections = re.split(r"(?m)^(?=### )", kept_part(text))[1:]
    kept = [part for part in sections if not part.startswith(f"### {title}\n")]
    parts = [f"{HEADING}\n\n{INTRODUCTION}", *kept, body]
    return before + "\n\n".join(part.strip() for part in parts) + "\n"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.suites", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the test files are")
    parser.add_argument("files", nargs="*", help="which of them (all test_*.py)")
    parser.add_argument("--title", help="of the section in docs/conformance.md (the folder's name)")
    parser.add_argument(
        "--python", default=sys.executable, help="the interpreter, with what the tests import"
    )
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--memory", default="4GiB", help="of each device")
    parser.add_argument("--cwd", type=Path, help="where the tests run (the file's folder)")
    parser.add_argument("-k", dest="keyword", help="only tests that match, as pytest's -k")
    parser.add_argument(
        "--pytest",
        type=shlex.split,
        default=[],
        help='more arguments of pytest, as "-p tests.conformance.suite_plugin --share 0/10"',
    )
    parser.add_argument("--test-timeout", type=int, default=120, help="seconds for a test")
    parser.add_argument("--timeout", type=int, default=3600, help="seconds for a file")
    parser.add_argument(
        "--again", action="store_true", help="run tests that failed once more, each in its own process"
    )
    parser.add_argument("--reports", nargs="+", type=Path, help="read these, and run no file")
    parser.add_argument(
        "--baseline",
        action="store_true",
        help="run what failed on the device cpu, too, without torch-loom, and say what fails there",
    )
    parser.add_argument("--no-write", action="store_true", help="leave docs/conformance.md alone")
    options = parser.parse_args(arguments)
    options.folder = options.folder.resolve()
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is no folder")
    return options


def chosen_files(options: argparse.Namespace) -> list[Path]:
    """Return the files to run."""
    if options.files:
        return [options.folder / name for name in options.files]
    return sorted(options.folder.glob("test_*.py"))


def show(results: Iterable[FileResult]) -> None:
    for result in results:
        print(
            f"{result.name}: {result.passed} passed, {result.failed} failed, {result.needing} need more, "
            f"{result.skipped} skipped",
            flush=True,
        )
        for failure in result.failures:
            print(
                f"  {failure.test}: [{failure.needs or 'failed'}] {failure.reason or failure.message}",
                flush=True,
            )


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    files = [] if options.reports else chosen_files(options)
    if not files and not options.reports:
        print(f"no test_*.py in {options.folder}", file=sys.stderr)
        return 2
    results = []
    for file in files:
        results.append(run_file(options, file))
        show(results[-1:])
    if options.reports:
        results = read_reports(options.reports)
        if options.again:
            results = [
                run_again(options, file_of(options, result), result) if result.failed else result
                for result in results
            ]
    if options.baseline:
        for result in results:
            mark_failures_of_the_cpu(options, result)
    if options.reports or options.baseline:
        show(results)
    if not options.no_write:
        title = options.title or options.folder.name
        text = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(with_section(text, title, section(title, results)), encoding="utf-8")
    return 1 if any(result.failed for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
