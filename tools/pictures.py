"""The pictures of pages in docs/pictures, taken anew: `python -m tools.pictures` (which needs Chromium).

Each is a page that a command of README's writes of a program in `examples`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH = 1120


@dataclass(frozen=True)
class Picture:
    """A page that `loom` writes.

    Attributes:
        arguments: of `loom`; the page's path follows them.
        program: the last argument.
        height: of what is seen of the page, in pixels.
    """

    arguments: Sequence[str]
    program: str
    height: int


PICTURES = {
    "plan.png": Picture(("plan", "--chip", "h200", "--html"), "examples/train_gpt2.py", 1480),
    "compile.png": Picture(
        ("compile", "--chip", "wormhole_b0", "--report"), "examples/compile_bert.py", 1280
    ),
}


def browser() -> str:
    """Return the path of a browser that takes pictures.

    Raises:
        SystemExit: none is installed.
    """
    for name in BROWSERS:
        if path := shutil.which(name):
            return path
    sys.exit(
        f"none of {', '.join(BROWSERS)} is installed: install Debian's package chromium, or your system's"
    )


def take(name: str, picture: Picture) -> None:
    """Write one picture."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        loom = [str(Path(sys.executable).with_name("loom")), *picture.arguments, str(page)]
        subprocess.run([*loom, picture.program], cwd=ROOT, check=True)
        shot = Path(folder) / name
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-background-networking",
        ]
        window = [f"--window-size={WIDTH},{picture.height}", f"--user-data-dir={folder}/profile"]
        subprocess.run([browser(), *options, *window, f"--screenshot={shot}", page.as_uri()], check=True)
        shutil.move(shot, FOLDER / name)
    print(FOLDER / name)


def main() -> None:
    """Take those that are named, or all."""
    names = sys.argv[1:] or list(PICTURES)
    if unknown := sorted(set(names) - set(PICTURES)):
        sys.exit(f"there are no pictures {', '.join(unknown)}: there are {', '.join(PICTURES)}")
    for name in names:
        take(name, PICTURES[name])


if __name__ == "__main__":
    main()
