"""What every sub-command prints with, so that output and errors look the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.text import Text

_COLUMNS_OF_LOGS = 120


def _made(stderr: bool = False) -> Console:
    """Return a console; one that writes to a pipe or a file is wide enough for tables, as logs of CI are."""
    made = Console(stderr=stderr)
    if not (made.is_terminal or made.is_jupyter or "COLUMNS" in os.environ):
        made.width = _COLUMNS_OF_LOGS
    return made


out = _made()
err = _made(stderr=True)


def show_error(message: object) -> None:
    """Prints one error on standard error. The message is printed as it is: brackets are no markup."""
    err.print(Text("error: ", style="bold red").append(str(message), style="default"), soft_wrap=True)


def show_warning(message: object) -> None:
    """Prints one warning on standard error, as it is."""
    err.print(Text("warning: ", style="bold yellow").append(str(message), style="default"), soft_wrap=True)


def fail(message: object, status: int = 1) -> NoReturn:
    """Prints an error and ends the command with an exit status: 2 where it was called wrongly."""
    show_error(message)
    raise SystemExit(status)


def check_folders(*paths: Path | str | None) -> None:
    """Fails before the work, not after it, where a file to be written has no folder, or is one itself."""
    for path in paths:
        if path is None:
            continue
        if not Path(path).resolve().parent.is_dir():
            fail(f"{path} cannot be written: there is no folder {Path(path).resolve().parent}")
        if Path(path).is_dir():
            fail(f"{path} cannot be written: this is a folder, not a file")
