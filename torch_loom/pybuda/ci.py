"""Files of a build, for programs that link to them."""

from __future__ import annotations

import os
from pathlib import Path


def create_symlink(target_path: str, symlink_path: str, remove_existing: bool = True) -> None:
    """Link to a file or folder, at once: another process sees the old link or the new one.

    Raises:
        FileExistsError: something is there, and it is not to be replaced.
    """
    if not remove_existing and os.path.lexists(symlink_path):
        raise FileExistsError(f"{symlink_path} exists: remove it, or take remove_existing=True")
    unfinished = Path(f"{symlink_path}.{os.getpid()}")
    unfinished.symlink_to(target_path)
    os.replace(unfinished, symlink_path)
