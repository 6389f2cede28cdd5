"""Libraries and precompiled headers on disk: each with its size and digest beside it, used if both fit.

A truncated library that is mapped ends the process with SIGBUS, so that it must not be loaded to find out.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from torch_loom import config


def is_whole(path: Path) -> bool:
    """Return whether a library is there as it was kept.

    Raises:
        ConfigurationError: another user could have put it there.
    """
    try:
        contents = _read(path)
        return _seal(contents) == _read(_seal_of(path))
    except FileNotFoundError:
        return False


def keep(library: Path, path: Path) -> None:
    """Move a library to ``path``. After a crash of the machine it is there as a whole or not at all."""
    seal = library.with_suffix(".seal")
    seal.unlink(missing_ok=True)
    seal.write_bytes(_seal(library.read_bytes()))
    library.chmod(0o700)
    for file in (library, seal):
        _sync(file)
    seal.replace(_seal_of(path))
    library.replace(path)
    _sync(path.parent)


def note_use(path: Path) -> None:
    """Have a library count as used now."""
    with contextlib.suppress(OSError):
        os.utime(path)


def shrink(folder: Path, most_bytes: int) -> None:
    """Remove what a folder keeps and was used longest ago, until the rest takes so many bytes.

    Processes that have loaded a library keep it: it is gone from the disk when they end.
    """
    files = []
    for path in (*folder.glob("*.so"), *folder.glob("*.gch")):
        with contextlib.suppress(OSError):
            status = path.stat()
            files.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= most_bytes:
            return
        with contextlib.suppress(OSError):
            forget(path)
            total -= size


def forget(path: Path) -> None:
    """Remove a library that cannot be loaded."""
    for file in (_seal_of(path), path):
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def exclusive(folder: Path, name: str) -> Iterator[None]:
    """One process at a time holds a lock of a folder; the system ends it with the process that does."""
    handle = os.open(folder / name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # A forked child may hold the same file open: closing would not end the lock.
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def _seal_of(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _seal(contents: bytes) -> bytes:
    return f"{len(contents)} {hashlib.sha256(contents).hexdigest()}\n".encode()


def _read(path: Path) -> bytes:
    """Return the contents of a file that only this user can have written."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise config.kernel_cache_refused(f"{path} cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise config.kernel_cache_refused(f"{path} is no file")
        if status.st_uid != os.getuid():
            raise config.kernel_cache_refused(
                f"{path} belongs to user {status.st_uid}: code is loaded from it"
            )
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise config.kernel_cache_refused(f"others may write {path}: code is loaded from it")
        with open(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
