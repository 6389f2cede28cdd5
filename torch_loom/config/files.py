"""What stands at a path that should be a file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def no_file(path: str | os.PathLike[str]) -> str | None:
    """Return why a path is no file that can be read to its end, as a sentence goes on; None: it is one."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return "there is no such file"
        return f"it cannot be read ({error})"
    if stat.S_ISREG(mode):
        return None
    return next((f"this is {words}, not a file" for kind, words in _KINDS if kind(mode)), "this is no file")
