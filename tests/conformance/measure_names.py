"""`python -m tests.conformance.measure_names`: the operator database under both names of the devices.

Runs `python -m tests.conformance` on the same samples as loom's and as CUDA's, and writes the counts into
docs/conformance.md. Fails if fewer samples pass under CUDA's name, or if either run fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.blocks import markdown_table

from .suites import DOCUMENT, ROOT, with_section

NAMES = ("loom", "cuda")
TITLE = "PyTorch's operator database"
# By the line of the report: passed, failed, known.
Counts = Mapping[str, Sequence[int]]


def measure(name: str, chosen: Sequence[str]) -> tuple[Counts, int]:
    """Return the counts under one name, and the exit status of the run."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder, "counts.json")
        line = [sys.executable, "-m", "tests.conformance", "--device", name, "--no-write", *chosen]
        done = subprocess.run(
            [*line, "--counts", str(counts)], cwd=ROOT, env={**os.environ, "TORCH_LOOM_DEVICE_NAME": name}
        )
        return (json.loads(counts.read_text(encoding="utf-8")) if counts.exists() else {}), done.returncode


def section(found: Mapping[str, Counts], chosen: Sequence[str]) -> str:
    """Return the section of the document."""
    header = ["", *(f"{name}: {what}" for name in NAMES for what in ("passed", "failed", "known"))]
    lines = dict.fromkeys(line for counts in found.values() for line in counts)
    rows = [
        [line, *(f"{count:,}" for name in NAMES for count in found[name].get(line, (0, 0, 0)))]
        for line in lines
    ]
    return "\n".join(
        (
            f"### {TITLE}",
            "",
            f"The same samples under both names (`{' '.join(chosen)}`), each against the CPU. Written by",
            "`python -m tests.conformance.measure_names`.",
            "",
            markdown_table(header, rows),
            "",
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both, print and write the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.measure_names", description=__doc__)
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--limit", default="2", help="samples of each kind per case")
    parser.add_argument("--ops", metavar="REGEX", help="only ops whose full name matches")
    parser.add_argument("--no-write", action="store_true", help="leave docs/conformance.md alone")
    options = parser.parse_args(arguments)
    chosen = ["--on-cuda", "--dtypes", options.dtypes, "--limit", options.limit]
    chosen += ["--ops", options.ops] if options.ops else []
    measured = {name: measure(name, chosen) for name in NAMES}
    found = {name: counts for name, (counts, _) in measured.items()}
    text = section(found, chosen)
    print(text)
    if not options.no_write:
        document = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(with_section(document, TITLE, text), encoding="utf-8")
    # Where PyTorch itself does another thing on devices called cuda, a known failure stands for a pass.
    own, cudas = (sum(passed + known for passed, _, known in found[name].values()) for name in NAMES)
    return 0 if cudas >= own > 0 and not any(status for _, status in measured.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
