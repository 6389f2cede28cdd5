"""`python -m tools.count_lines [REVISION …]`: lines of the product's hand-written code, room by room.

A line counts if it is neither blank nor a comment; docstrings count. Generated files do not, nor what serves
the tests alone. With revisions of git the table has a column for each: what a change has cost or saved.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections import Counter
from pathlib import PurePosixPath

from tools.blocks import markdown_table

PRODUCT = ("torch_loom", "csrc")
ENDINGS = {".py": "#", ".cpp": "//", ".h": "//"}
LEFT_OUT = {"generated", "testing"}  # folders, wherever they are
WORKING_TREE = "here"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("revisions", nargs="*", help="of git; default: the working tree alone")
    parser.add_argument("--depth", type=int, default=2, help="folders of a row's name (default: 2)")
    arguments = parser.parse_args()
    columns = {name: rooms(name, arguments.depth) for name in [*arguments.revisions, WORKING_TREE]}
    names = sorted({room for counted in columns.values() for room in counted})
    rows = [[name, *(counted[name] for counted in columns.values())] for name in names]
    rows.append(["all", *(sum(counted.values()) for counted in columns.values())])
    print(markdown_table(["folder", *columns], [[str(cell) for cell in row] for row in rows]))


def rooms(revision: str, depth: int) -> Counter[str]:
    """Return the lines of code of each folder of the product, at a revision."""
    counted: Counter[str] = Counter()
    for path in files(revision):
        counted["/".join(path.parts[:-1][:depth])] += code_lines(text_of(path, revision), path.suffix)
    return counted


def files(revision: str) -> list[PurePosixPath]:
    """Return the files that count, by their paths in the repository."""
    listed = ["ls-files"] if revision == WORKING_TREE else ["ls-tree", "-r", "--name-only", revision]
    names = _git(*listed, "--", *PRODUCT).splitlines()
    found = [PurePosixPath(name) for name in names]
    return [path for path in found if path.suffix in ENDINGS and not LEFT_OUT & set(path.parts)]


def text_of(path: PurePosixPath, revision: str) -> str:
    """Return what a file says at a revision; of a file that was deleted here, nothing."""
    if revision != WORKING_TREE:
        return _git("show", f"{revision}:{path}")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def code_lines(text: str, ending: str) -> int:
    """Return how many lines of a text are neither blank nor comments.

    Args:
        ending: of the file's name, which says how its comments begin.
    """
    mark = ENDINGS[ending]
    if mark == "//":
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    lines = (line.strip() for line in text.splitlines())
    return sum(1 for line in lines if line and not line.startswith(mark))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
