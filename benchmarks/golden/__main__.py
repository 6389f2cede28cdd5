"""Runs every section of every set of vectors in a folder and prints how many results are exact.

A set is ``NAME.npz``, inputs and results as bits, with ``NAME.json``, which says what its sections are:
``tensix_*`` (instructions of Tensix chips), ``tensix_fn_*`` (functions of their vector unit; no index),
``mma_*`` (matrix instructions of GPUs). A section without a rule counts as not exact.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks.golden import functions, mma, tensix
from benchmarks.golden.sections import Result

READERS = (("tensix_fn_", functions.results), ("tensix_", tensix.results), ("mma_", mma.results))


def results(folder: Path) -> Iterator[tuple[str, Result]]:
    """Yields the results of each section with the name of its set."""
    for path in sorted(folder.glob("*.npz")):
        reader = next((reader for prefix, reader in READERS if path.stem.startswith(prefix)), None)
        if reader is None:
            continue
        index: dict[str, Any] = {}
        if path.with_suffix(".json").exists():
            index = json.loads(path.with_suffix(".json").read_text())
        with np.load(path) as arrays:
            for result in reader(dict(arrays), index):
                yield path.stem, result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.golden", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the sets lie")
    folder: Path = parser.parse_args().folder
    if not folder.is_dir():
        parser.error(f"{folder} is no folder")
    exact = total = 0
    print(f"{'set':<20} {'section':<58} {'exact':>9} {'of':>9}")
    for name, result in results(folder):
        exact += result.exact
        total += result.total
        note = f"  {result.note}" if result.note else ""
        print(f"{name:<20} {result.section:<58} {result.exact:>9} {result.total:>9}{note}")
    print(f"exact {exact} of {total}")
    return 0 if exact == total else 1


if __name__ == "__main__":
    sys.exit(main())
