"""The host side of tensors in files, which the system writes out when memory is short."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch_loom import _C, config
from torch_loom.config import settings
from torch_loom.errors import ConfigurationError

_LOCK = "lock"
_NAMES = re.compile(r"\d+-offload-\w+")
"""Of the folders below RBLN_OFFLOAD_DIR, which may have others."""


class _Folder:
    """The folder of this process, made when it is first needed, and how many blocks are open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._path: str | None = None
        self._process = 0
        self._lock_file = -1

    def enter(self) -> None:
        with self._lock:
            if self._depth == 0:
                _C.open_host_folder(self._made())
            self._depth += 1

    def leave(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                _C.close_host_folder()

    def _made(self) -> str:
        # A child that was forked has a folder of its own.
        if self._path is None or self._process != os.getpid():
            parent = Path(config.value(settings.RBLN_OFFLOAD_DIR))
            if self._lock_file != -1:
                os.close(self._lock_file)  # the parent's
                self._lock_file = -1
            try:
                parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                _remove_orphans(parent)
                self._path, self._lock_file = _new_folder(parent)
            except OSError as error:
                raise ConfigurationError(
                    f"RBLN_OFFLOAD_DIR={str(parent)!r}: no files can be kept there: {error}"
                ) from error
            self._process = os.getpid()
            atexit.register(self.remove)
        return self._path

    def remove(self) -> int:
        with self._lock:
            removed = _C.remove_host_files()
            if self._path is not None and self._process == os.getpid() and self._depth == 0:
                shutil.rmtree(self._path, ignore_errors=True)
                os.close(self._lock_file)
                self._path, self._lock_file = None, -1
                atexit.unregister(self.remove)
            return removed


def _new_folder(parent: Path) -> tuple[str, int]:
    """Return a folder of this process, and the file that is locked as long as the process lives."""
    made = tempfile.mkdtemp(prefix=f".{os.getpid()}-offload-", dir=parent)
    try:
        lock = os.open(os.path.join(made, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # where files cannot be locked, it is never taken for an orphan
            fcntl.flock(lock, fcntl.LOCK_EX)
        # Only now: one of that name without a lock is a dead process's.
        path = str(parent / os.path.basename(made)[1:])
        os.rename(made, path)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return path, lock


def _remove_orphans(parent: Path) -> None:
    """Remove the folders of processes that were killed."""
    for folder in parent.iterdir():
        if not _NAMES.fullmatch(folder.name):
            continue
        with contextlib.suppress(OSError):  # of another user, or removed meanwhile
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


_folder = _Folder()


@contextmanager
def offload() -> Iterator[None]:
    """Let tensors that are made within a ``with`` block, by any thread, wait for the device in files.

    Under the lazy memory policy a new tensor is on the host until an op of the device needs it. Its host
    side is then a file below RBLN_OFFLOAD_DIR, whose pages the system writes out and drops when memory is
    short; of 4 KiB and more. It is removed with the host side: when the tensor is freed, or goes to the
    device. Blocks may be nested. Under the eager policy tensors have no host side, and nothing is in files.

    Raises:
        ConfigurationError: there can be no files in that folder.

    Example:
        >>> with torch.rbln.offload():  # doctest: +SKIP
        ...     cache = torch.zeros(1 << 30, device="rbln")
    """
    _folder.enter()
    try:
        yield
    finally:
        _folder.leave()


def release_offload_temp_storage() -> int:
    """Remove this process's files of :func:`offload`, and their folder; it is done at the end, too.

    Tensors whose host side is in them can still be used: the system keeps what is mapped, without a name.

    Returns:
        How many files were removed.
    """
    return _folder.remove()
