"""`python -m tests.conformance.demos FOLDER`: the vendor's demos, unmodified, on virtual chips.

The demos are not in this repository: ``model_demos`` of tt-buda-demos, tt-xla's ``examples/pytorch``, and
loaders of tt-forge-models. Each runs in a process of its own; what it would download is made here
(`stand_ins.py`): weights are random. A demo passes if it ends, and all that its devices computed correlates
by 0.99 or more with what PyTorch computes from the same inputs. `--write-docs NAME` writes a block of
docs/conformance.md.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from tests.conformance.suites import first_line
from tools.blocks import markdown_table, replace_block

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "conformance.md"
ENOUGH = 0.99
PRELOADED = ("torch", "torchvision", "transformers", "timm", "PIL.Image", "torch_loom.compat.pybuda")
# What is not run, by a part of its path.
NOT_RUN = {
    "nlp_demos/falcon": "a model of 7 billion parameters with layers of the demo's own",
    "nlp_demos/fuyu8b": "a model of 8 billion parameters with layers of the demo's own",
    "nlp_demos/phi2": "512 tokens without a cache of keys: takes minutes on two cores",
    "nlp_demos/qwen1_5": "512 tokens without a cache of keys: takes minutes on two cores",
}
# Files that demos import, in folders that hold nothing else.
NO_DEMOS = ("utils", "holli_src")


@dataclass
class Result:
    """What a demo came to: the least correlation of its outputs, and why it did not pass."""

    demo: str
    pcc: float | None = None
    num_compared: int = 0
    error: str = ""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.error and (self.pcc is None or self.pcc >= ENOUGH)


def demos_in(folder: Path, wanted: Sequence[str]) -> list[str]:
    """Return the demos of a folder that match one of these texts, or all.

    A demo is a file that runs itself or has tests, or the loader of a model of PyTorch's.
    """
    files = sorted(path for path in folder.rglob("*.py") if not set(path.parent.parts) & set(NO_DEMOS))
    names = [str(path.relative_to(folder)) for path in files if is_demo(path)]
    return [name for name in names if not wanted or any(one in name for one in wanted)]


def is_demo(path: Path) -> bool:
    """Return whether a file is a demo."""
    if path.name == "loader.py":
        return path.parent.name == "pytorch"
    text = path.read_text(encoding="utf-8")
    return '__name__ == "__main__"' in text or ("torch_xla" in text and "def test_" in text)


def run_here(demo: str, hubs: Path | None) -> Result:
    """Run a demo in this process, in whose folder its packages lie."""
    from tests.conformance.demos import stand_ins, watch, xla

    result = Result(demo)
    sys.path.insert(0, os.getcwd())
    torch.manual_seed(0)
    try:
        stand_ins.install(hubs)
        found = xla.run(demo) if xla.is_meant(demo) else watch.run(demo)
        result.num_compared, result.pcc = len(found), min(found, default=None)
        if not found and not xla.only_writes(demo):
            result.error = "no output was compared"
    except BaseException as error:
        traceback.print_exc()
        result.error = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    result.notes = list(dict.fromkeys(stand_ins.notes))
    return result


def run_forked(demo: str, options: argparse.Namespace, logs: Path) -> Result:
    """Run a demo in a fork of this process, which has imported what most of them import."""
    begun = time.monotonic()
    stem = demo.removesuffix(".py").replace("/", ".")
    log, answer = logs / f"{stem}.log", logs / f"{stem}.json"
    child = os.fork()
    if child == 0:
        os.setsid()
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        result = run_here(demo, options.hubs)
        answer.write_text(json.dumps(asdict(result)))
        sys.stdout.flush()
        os._exit(0)
    ended = _wait(child, options.timeout)
    if answer.exists():
        result = Result(**json.loads(answer.read_text()))
    else:
        result = Result(demo, error=f"ended with status {ended}" if ended is not None else "")
        if ended is None:
            result.error = f"takes more than {options.timeout} s on two cores"
    result.seconds = time.monotonic() - begun
    return result


def _wait(child: int, seconds: float) -> int | None:
    """Return how a process ended; None: it was ended, with its children, after these seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.2)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


# Why a demo cannot run here, by what its error says.
REASONS = {
    r"No module named 'tensorflow": "TensorFlow Lite models need TensorFlow",
    r"No module named '(\w+)": r"needs the package \1",
    r"nothing stands for|are not here": "its model is of a source that is not here",
}


def reason_of(result: Result) -> str:
    """Return in words why a demo did not pass."""
    for pattern, words in REASONS.items():
        found = re.search(pattern, result.error)
        if found:
            return found.expand(words)
    return first_line(result.error) if result.error else f"correlates by {result.pcc:.4f}"


def name_of(demo: str) -> str:
    """Return the name of a demo in the table: its file's, with folders where several share that."""
    if demo.startswith("examples/"):
        return demo.removeprefix("examples/")
    folder, _, file = demo.rpartition("/")
    return folder.removeprefix("third_party/tt_forge_models/") if file == "loader.py" else file


def section(results: Sequence[Result]) -> str:
    """Return the section of the document."""
    passed = [result for result in results if result.passed]
    rows = [
        [
            name_of(result.demo),
            "" if result.pcc is None else f"{min(result.pcc, 0.9999999):.5f}",
            "passed" if result.passed else reason_of(result),
            "; ".join(result.notes),
        ]
        for result in results
    ]
    return (
        f"Of {len(results)} demos {len(passed)} pass: they end, and all that their devices computed "
        f"correlates by {ENOUGH} or more with PyTorch's values of the same inputs on the host. The files are "
        "unmodified; weights are random, pictures and texts are made "
        "(`tests/conformance/demos/stand_ins.py`); the last column says where a model is a smaller one of "
        "its architecture.\n\n" + markdown_table(["demo", "correlation", "result", "smaller"], rows)
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.demos", description=__doc__)
    parser.add_argument("folder", type=Path, help="model_demos, of tt-buda-demos")
    parser.add_argument("demos", nargs="*", help="only those whose paths have one of these texts")
    parser.add_argument("--hubs", type=Path, help="sources for torch.hub, in folders OWNER+NAME")
    parser.add_argument("--timeout", type=float, default=240, help="seconds for a demo")
    parser.add_argument("--logs", type=Path, help="where the demos' own words are kept")
    parser.add_argument(
        "--results", type=Path, help="a file that has results of earlier calls, and keeps these"
    )
    parser.add_argument("--write-docs", metavar="NAME", help="write this block of docs/conformance.md")
    return parser.parse_args(arguments)


def _run_all(options: argparse.Namespace) -> Iterator[Result]:
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with tempfile.TemporaryDirectory() as scratch:
        logs = options.logs or Path(scratch, "logs")
        logs.mkdir(parents=True, exist_ok=True)
        here = Path(scratch, "demos")
        shutil.copytree(options.folder, here)  # demos write into their folders
        os.chdir(here)
        for demo in demos_in(options.folder, options.demos):
            left_out = [reason for path, reason in NOT_RUN.items() if demo.startswith(path)]
            result = (
                Result(demo, error=left_out[0]) if left_out else run_forked(demo, options, logs.absolute())
            )
            print(
                f"{demo}: {'passed' if result.passed else reason_of(result)} "
                f"({result.pcc}, {result.seconds:.0f} s)",
                flush=True,
            )
            yield result


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    for name in ("folder", "hubs", "logs", "results"):
        given = getattr(options, name)
        setattr(options, name, given and given.resolve())
    found: dict[str, Result] = {}
    if options.results and options.results.exists():
        kept = [Result(**one) for one in json.loads(options.results.read_text())]
        found = {result.demo: result for result in kept}
    for result in _run_all(options):
        found[result.demo] = result
        if options.results:
            options.results.write_text(json.dumps([asdict(one) for one in found.values()]))
    results = [found[name] for name in sorted(found)]
    print(f"{sum(result.passed for result in results)} of {len(results)} passed")
    if options.write_docs:
        text = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(replace_block(text, options.write_docs, section(results)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
