"""What torch-loom adds to `import torch`: beside an environment that lacks torch-loom alone, in turns.

Each is the whole life of an interpreter that imports torch and ends. The first of each is not counted: it
compiles what has no byte code yet, as an installer does.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import torch

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

import torch_loom
from benchmarks._common import parser, write_docs, write_json
from tools.blocks import markdown_table
from torch_loom import config

COMMAND = "python -m benchmarks.import_time"
TARGET_SECONDS = 0.080
ROUNDS, QUICK_ROUNDS = 10, 1
_OURS = ("torch_loom", "__editable__")


@contextmanager
def environments() -> Iterator[tuple[Path, Path]]:
    """Yields two folders of links to what is installed here: with torch-loom, and without it."""
    site = Path(torch.__file__).parents[1]
    with TemporaryDirectory() as folder:
        both = Path(folder, "with"), Path(folder, "without")
        for made in both:
            made.mkdir()
            for path in site.iterdir():
                if not path.name.startswith(_OURS):
                    (made / path.name).symlink_to(path)
        package = Path(torch_loom.__file__).parent
        ours = [package, package.with_name("torch_loom_autoload.py"), *site.glob("torch_loom-*.dist-info")]
        for path in ours:
            (both[0] / path.name).symlink_to(path)
        yield both


def seconds(packages: Path) -> float:
    """Returns how long an interpreter lives that imports torch from a folder of packages."""
    settings = (config.ENV_PREFIX, "TORCH_DEVICE_BACKEND_AUTOLOAD", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
    began = perf_counter()
    # Without the packages of this interpreter, torch-loom among them.
    command = [sys.executable, "-S", "-c", "import torch"]
    subprocess.run(command, env={**kept, "PYTHONPATH": str(packages)}, cwd=packages, check=True)
    return perf_counter() - began


def measure(rounds: int) -> tuple[list[float], list[float]]:
    """Returns the seconds with and without torch-loom, measured in turns."""
    with environments() as folders:
        for folder in folders:
            seconds(folder)
        times: tuple[list[float], list[float]] = [], []
        for number in range(rounds):
            order = list(zip(times, folders, strict=True))
            for measured, folder in order if number % 2 else reversed(order):
                measured.append(seconds(folder))
    return times


def docs_body(with_seconds: float, without_seconds: float, rounds: int) -> str:
    """Returns the section for docs/performance.md."""
    header = ["`import torch`", "with torch-loom", "without", "added", "at most"]
    figures = (with_seconds, without_seconds, with_seconds - without_seconds, TARGET_SECONDS)
    row = [f"median of {rounds}", *(f"{figure * 1e3:.0f} ms" for figure in figures)]
    return markdown_table(header, [row])


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    options = parser("What torch-loom adds to the import of torch.").parse_args(arguments)
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    with_loom, without = map(statistics.median, measure(rounds))
    added = with_loom - without
    print(f"with {with_loom * 1e3:.0f} ms, without {without * 1e3:.0f} ms, added {added * 1e3:.0f} ms")
    if options.json:
        figures = {"with_ms": with_loom * 1e3, "without_ms": without * 1e3, "added_ms": added * 1e3}
        write_json(options.json, {"target_ms": TARGET_SECONDS * 1e3, "command": COMMAND, **figures})
    if options.write_docs:
        write_docs("import_time", "Import", docs_body(with_loom, without, rounds), COMMAND)
    missed = added > TARGET_SECONDS
    if missed:
        print(f"missed: at most {TARGET_SECONDS * 1e3:.0f} ms")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
