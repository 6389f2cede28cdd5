"""Pictures of pages, by Chromium.

    python -m tools.pictures [NAME ...]

takes those of docs/pictures anew: each is a page that a command of README's writes of a program in
`examples`.

    python -m tools.pictures --site [PAGE ...]

takes pages of the site that `make site` builds, at the width of a desk's screen and of a telephone's, to look
at; they are written to build/pictures.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

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


SITE = ROOT / "build" / "site"
SITE_PICTURES = ROOT / "build" / "pictures"
# Pages with a list, code, a wide table and signatures.
SITE_PAGES = ("index", "ci", "settings", "reference/torch_loom.device")
SITE_WIDTHS = (1280, 390)
SITE_HEIGHT = 2400
# Chromium opens no narrower window; a page in a frame has the frame's width.
LEAST_WINDOW = 500


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
        shoot(page.as_uri(), FOLDER / name, WIDTH, picture.height)


def shoot(address: str, target: Path, width: int, height: int) -> None:
    """Write what a browser shows of a page."""
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--disable-background-networking",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if width < LEAST_WINDOW:
            frame = folder / "frame.html"
            style = f"width:{width}px;height:{height}px;border:0"
            frame.write_text(f'<body style="margin:0"><iframe src="{address}" style="{style}"></iframe>')
            address = frame.as_uri()
        window = [f"--window-size={width},{height}", f"--user-data-dir={folder}/profile"]
        shot = folder / "shot.png"
        # What a page does when it has been loaded, as pictures of diagrams, takes a moment.
        line = [
            browser(),
            *options,
            *window,
            "--virtual-time-budget=5000",
            f"--screenshot={shot}",
            address,
        ]
        subprocess.run(line, check=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(shot, target)
    print(target)


def take_site(pages: Sequence[str]) -> None:
    """Write pictures of pages of the site, at each width.

    Raises:
        SystemExit: the site has no such page.
    """
    with served(SITE) as address:
        for page in pages:
            name = "index.html" if page == "index" else f"{page}/index.html"
            if not (SITE / name).is_file():
                sys.exit(
                    f"there is no {SITE / name}: `make site` builds the site, of which `--site` takes pages "
                    "by name"
                )
            for width in SITE_WIDTHS:
                target = SITE_PICTURES / f"{page.replace('/', '_')}-{width}.png"
                shoot(f"{address}/{name}", target, width, SITE_HEIGHT)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine: from a file, pages of the site have no search. The address."""

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def main() -> None:
    """Take those that are named, or all."""
    if sys.argv[1:2] == ["--site"]:
        take_site(sys.argv[2:] or SITE_PAGES)
        return
    names = sys.argv[1:] or list(PICTURES)
    if unknown := sorted(set(names) - set(PICTURES)):
        sys.exit(f"there are no pictures {', '.join(unknown)}: there are {', '.join(PICTURES)}")
    for name in names:
        take(name, PICTURES[name])


if __name__ == "__main__":
    main()
