"""Where the package was installed from, as pip says, and the command that installs it again."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote

OPTIONS = "pip install --force-reinstall --no-deps --no-build-isolation"

_PACKAGE = Path(__file__).parents[1]


def repair() -> str:
    """Return the command that installs the package again, from where it came from."""
    import shlex  # here: most programs need no repair

    if is_checkout():
        return f"{OPTIONS} --editable {shlex.quote(str(_PACKAGE.parent))}"
    found = _direct_url()
    url = str(found.get("url", ""))
    folder = found.get("dir_info")
    if isinstance(folder, dict) and url.startswith("file://"):
        is_editable = "--editable " if folder.get("editable") else ""
        return f"{OPTIONS} {is_editable}{shlex.quote(unquote(url.removeprefix('file://')))}"
    repository = found.get("vcs_info")
    if url and isinstance(repository, dict):
        commit = repository.get("commit_id")
        address = f"git+{url}@{commit}" if commit else f"git+{url}"
        return f"{OPTIONS} --no-cache-dir {shlex.quote(address)}"
    if url and "archive_info" in found:
        return f"{OPTIONS} --no-cache-dir {shlex.quote(url)}"
    # pip keeps wheels that it has built, whatever torch they were built against.
    return f"{OPTIONS} --no-cache-dir torch-loom"


def is_checkout() -> bool:
    """Return whether Python imports the package from a checkout's sources."""
    return (_PACKAGE.parent / "csrc").is_dir() and (_PACKAGE.parent / "setup.py").is_file()


def is_wheel() -> bool:
    """Return whether it was installed from a wheel that was named by its file or address."""
    return not is_checkout() and str(_direct_url().get("url", "")).partition("#")[0].endswith(".whl")


def lost_files() -> list[Path]:
    """Return the package's files that had content when pip installed them, and are gone or empty now.

    A file that was changed is not among them: that may be an experiment.
    """
    try:
        noted = distribution("torch-loom").files or []
    except (PackageNotFoundError, OSError, ValueError):
        return []
    # Python writes byte code again where it is missing.
    # Only one of the extensions has to be there, which is looked at more closely.
    passed = {"__pycache__", "extensions"}
    own = [
        each for each in noted if each.parts[0].startswith(_PACKAGE.name) and passed.isdisjoint(each.parts)
    ]
    return [path for each in own if each.size and not _size(path := Path(str(each.locate())))]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _direct_url() -> dict[str, Any]:
    # Empty where pip took it from an index, or the file is damaged.
    try:
        found = json.loads(distribution("torch-loom").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
