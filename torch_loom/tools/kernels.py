"""`loom kernels`: run a program, and list its own kernels that it launched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_loom.errors import ConfigurationError
from torch_loom.image.report import duration
from torch_loom.tools import console, kernels_page
from torch_loom.tools.launch import Values, prepare
from torch_loom.tools.plan_text import size_text


def run(arguments: Sequence[str], values: Values, html: Path | None) -> int:
    """Run a program under the name cuda, and show its kernels.

    Args:
        arguments: what to run: ``file.py`` or ``-m module``, and its arguments.
        values: settings by their names; None for those that are not given.
        html: where to write the page; None: nowhere.

    Returns:
        The exit status of the program.

    Raises:
        ConfigurationError: a value is bad, or there is no such program.
    """
    from torch_loom import config

    is_python = arguments[0] in {"-m", "-c"} or arguments[0].endswith(".py")
    if not is_python:
        raise ConfigurationError(f"loom kernels runs SCRIPT.py or -m MODULE, and {arguments[0]!r} is neither")
    if arguments[0].endswith(".py") and not Path(arguments[0]).is_file():
        raise ConfigurationError(f"there is no file {arguments[0]!r}")
    console.check_folders(html)
    with tempfile.TemporaryDirectory(prefix="loom-kernels-") as folder:
        prepare(config.CUDA_NAME, {**values, "kernel_report": folder})
        done = subprocess.run([sys.executable, *arguments], env=os.environ, check=False)
        found = merged([json.loads(path.read_text(encoding="utf-8")) for path in _files(Path(folder))])
    _show(found)
    if html is not None:
        html.write_text(kernels_page.page(list(arguments), found), encoding="utf-8")
        console.out.print(f"written: {html}", highlight=False)
    return done.returncode


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("kernels-*.json"))


def merged(processes: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the kernels of several processes, each kernel once."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for kernels in processes:
        for kernel in kernels:
            place = (kernel["name"], kernel["file"], kernel["line"], kernel["generated"])
            known = found.setdefault(place, {**kernel, "launches": 0, "seconds": 0.0, "bytes": 0.0})
            for key in ("launches", "seconds", "bytes"):
                known[key] += kernel[key]
    return sorted(found.values(), key=lambda each: -each["seconds"])


def _show(kernels: list[dict[str, Any]]) -> None:
    if not kernels:
        console.out.print("The program launched no kernel of its own.", highlight=False)
        return
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    table.add_column("kernel", overflow="fold", min_width=16)
    table.add_column("at", overflow="fold")
    for name in ("launches", "time", "of one", "moved", "occupancy", "checks"):
        table.add_column(name, justify="left" if name == "checks" else "right")
    for kernel in kernels:
        place = f"{os.path.basename(kernel['file'])}:{kernel['line']}" if kernel["file"] else ""
        table.add_row(
            kernel["name"],
            place,
            str(kernel["launches"]),
            duration(kernel["seconds"]),
            duration(kernel["seconds"] / kernel["launches"]),
            size_text(round(kernel["bytes"])),
            kernels_page.share_text(kernel["shapes"][0]),
            kernels_page.checks_text(kernel),
        )
    chip = kernels[0]["shapes"][0]["chip"]
    console.out.print(table)
    console.out.print(f"Times are the cost model's, of the chip {chip}.", highlight=False)
