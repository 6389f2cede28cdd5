"""What stands at a path that should be a file, and files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
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


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path to write to; what is written there is at the wanted path whole or not at all.

    A file that was there stays until then. Links are followed; what is no file, such as a pipe or a device,
    is written to.

    Raises:
        OSError: it cannot be written: the disk is full, or the folder is missing or not writable.
        TypeError: ``path`` is neither text nor a path.
        ValueError: ``path`` is empty, or has a null character.
    """
    given = os.fspath(path)
    if not isinstance(given, str):
        raise TypeError(f"a path is text, not {type(given).__name__}")
    if not given:
        raise ValueError("the path is empty")
    if _is_special(given):
        with tempfile.TemporaryDirectory(prefix="loom-") as folder:
            yield Path(folder) / "file"
            with (Path(folder) / "file").open("rb") as made, open(given, "wb") as special:
                shutil.copyfileobj(made, special)
        return
    target = Path(os.path.realpath(given))
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        unfinished.touch()
        mode = unfinished.stat().st_mode
        yield unfinished
        unfinished.chmod(mode)  # safetensors leaves a file that its owner alone may read
        os.replace(unfinished, target)
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _is_special(path: str) -> bool:
    """Whether a path is something that is written to and not replaced; ``/dev/stdout`` may be a file, too."""
    if path.startswith(("/dev/", "/proc/")):
        return os.path.exists(path)
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
