"""What compiling costs: this checkout's extensions beside those of another one, in CPU time of the compiler.

Each is copied and built from nothing with `setup.py build_ext --inplace`, as `make build` does it, with one
compiler at a time and without ccache. Both are built at the same time, so that what else the machine does
slows both. The other checkout is a folder, as `git worktree add` makes one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._common import parser, write_docs, write_json
from tools.blocks import markdown_table

COMMAND = "python -m benchmarks.build --reference FOLDER"
TARGET = 0.5
ROOT = Path(__file__).resolve().parent.parent


def copy_of(checkout: Path, target: Path) -> Path:
    """Returns `target` with the files of a checkout that git knows or does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=checkout,
        check=True,
        stdout=subprocess.PIPE,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (checkout / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, target / name)
    return target


def without_ccache(path: str) -> str:
    """Returns a PATH whose compilers are the compilers themselves."""
    return os.pathsep.join(part for part in path.split(os.pathsep) if "ccache" not in Path(part).parts)


def build_seconds(checkouts: Sequence[Path]) -> list[float]:
    """Returns the CPU seconds, user and system, of whole builds of copies of the checkouts, side by side."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(checkouts)) as pool:
        copies = [copy_of(checkout, Path(folder) / str(i)) for i, checkout in enumerate(checkouts)]
        return list(pool.map(built, copies))


def built(copy: Path) -> float:
    """Builds a checkout; returns the CPU seconds."""
    environment = {
        **os.environ,
        "PATH": without_ccache(os.environ["PATH"]),
        "PYTHONPATH": str(copy),
        "CCACHE_DISABLE": "1",
        "MAX_JOBS": "1",
    }
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    with (copy / "build.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=copy, env=environment, stdout=log, stderr=log)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # wait4 has reaped it
    if process.returncode != 0:
        raise SystemExit(f"{copy} does not build:\n{(copy / 'build.log').read_text()[-2000:]}")
    return used.ru_utime + used.ru_stime


def docs_body(seconds: float, reference_seconds: float, reference: str) -> str:
    """Returns the section for docs/performance.md."""
    header = ["CPU seconds of a build", f"of {reference}", "ratio", "at most"]
    row = [f"{seconds:.0f}", f"{reference_seconds:.0f}", f"{seconds / reference_seconds:.2f}", f"{TARGET}"]
    return markdown_table(header, [row])


def name_of(checkout: Path) -> str:
    """Returns the commit of a checkout."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    known = parser("CPU time of a build, beside another checkout's.")
    known.add_argument("--reference", type=Path, required=True, help="the other checkout")
    options = known.parse_args(arguments)
    seconds, reference_seconds = build_seconds([ROOT, options.reference])
    ratio, commit = seconds / reference_seconds, name_of(options.reference)
    print(f"{seconds:.0f} CPU seconds, {commit} {reference_seconds:.0f}: ratio {ratio:.3f}, at most {TARGET}")
    if options.json:
        figures = {"seconds": seconds, "reference_seconds": reference_seconds, "reference": commit}
        write_json(options.json, {"target": TARGET, "command": COMMAND, **figures})
    if options.write_docs:
        write_docs("build", "Building", docs_body(seconds, reference_seconds, commit), COMMAND)
    return 1 if options.check and ratio > TARGET else 0


if __name__ == "__main__":
    raise SystemExit(main())
