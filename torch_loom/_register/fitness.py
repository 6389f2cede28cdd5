"""Whether the extension fits the running PyTorch: found out from files, before it is loaded.

An extension that was built against another PyTorch, or that is damaged, may fail to load in any way: an
exception in a static initialiser, or a page that is not there, ends the process.
"""

from __future__ import annotations

import json
import runpy
import shlex
import zlib
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

from torch_loom import config, torch_version
from torch_loom.errors import ExtensionError, VersionMismatchError

_PACKAGE = Path(__file__).parents[1]
_BLOCK = 1 << 20


def check(torch: ModuleType) -> None:
    """Raise what is wrong with the extension.

    Args:
        torch: the running one.

    Raises:
        VersionMismatchError: it was built against another PyTorch, or this one is not known.
        ExtensionError: it is not there, or not as it was built.
        ConfigurationError: TORCH_LOOM_ANY_TORCH has a bad value.
    """
    running = str(torch.__version__)
    if refusal := torch_version.refusal(running, tries_any=config.tries_any_torch()):
        raise VersionMismatchError(refusal)
    if refusal := torch_version.platform_refusal(torch_version.this_platform()):
        raise ExtensionError(refusal)
    file = _find_extension()
    built = _record()
    built_with = str(built["TORCH_VERSION"])
    if not torch_version.have_one_abi(built_with, running):
        raise VersionMismatchError(
            f"torch-loom was built against torch {built_with}, but torch {running} is running "
            f"({Path(str(torch.__file__)).parent}). Build it again: `{repair()}`; or install torch "
            f"{'.'.join(map(str, torch_version.minor_of(built_with)))}."
        )
    size = file.stat().st_size
    if size != built["EXTENSION_BYTES"] or _checksum(file) != built["EXTENSION_CHECKSUM"]:
        raise ExtensionError(
            f"{file} is damaged: it is not the file that was built ({size:,} bytes, of "
            f"{built['EXTENSION_BYTES']:,}). Install it again: `{repair()}`."
        )


def load_failure(error: BaseException, torch: ModuleType) -> ExtensionError:
    """Return the error to raise where the extension could not be loaded."""
    return ExtensionError(
        f"The extension torch_loom._C could not be loaded into torch {torch.__version__} ({error}). "
        f"Build it again: `{repair()}`."
    )


def repair() -> str:
    """Return the command that builds the package again, against the torch that is installed."""
    options = "pip install --force-reinstall --no-deps --no-build-isolation"
    source = _checkout()
    if source is None:
        # pip keeps wheels that it has built, whatever torch they were built against.
        return f"{options} --no-cache-dir torch-loom"
    folder, is_editable = source
    return f"{options} {'--editable ' if is_editable else ''}{shlex.quote(folder)}"


def _checkout() -> tuple[str, bool] | None:
    # Where pip says that it has installed from, and whether Python imports from there.
    if _is_checkout():
        return str(_PACKAGE.parent), True
    try:
        text = distribution("torch-loom").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    origin = json.loads(text or "{}")
    url = str(origin.get("url", ""))
    if "dir_info" not in origin or not url.startswith("file://"):
        return None
    return unquote(url.removeprefix("file://")), bool(origin["dir_info"].get("editable"))


def _is_checkout() -> bool:
    return (_PACKAGE.parent / "csrc").is_dir() and (_PACKAGE.parent / "setup.py").is_file()


def _find_extension() -> Path:
    for suffix in EXTENSION_SUFFIXES:
        if (file := _PACKAGE / f"_C{suffix}").exists():
            return file
    if _is_checkout():
        raise ExtensionError(
            f"{_PACKAGE.parent} has torch-loom's sources without the compiled extension, and Python imports "
            "them. Start Python in another folder to import what is installed, or build the extension here: "
            "`pip install --no-build-isolation -e .`"
        )
    others = sorted(file.name for file in _PACKAGE.glob("_C.*.so"))
    raise ExtensionError(
        f"{_PACKAGE} has no extension for this Python ({EXTENSION_SUFFIXES[0]}): there is "
        f"{', '.join(others) or 'none'}. Install torch-loom with this Python: `{repair()}`."
    )


def _record() -> dict[str, Any]:
    # Written beside the extension by setup.py. Not imported: that might find another copy of the package.
    file = _PACKAGE / "_built_with.py"
    try:
        found = runpy.run_path(str(file))
    except (OSError, SyntaxError, ValueError):
        found = {}
    if not {"TORCH_VERSION", "EXTENSION_BYTES", "EXTENSION_CHECKSUM"} <= found.keys():
        raise ExtensionError(
            f"{file} does not say which torch the extension was built against, and what it is. "
            f"Install torch-loom again: `{repair()}`."
        )
    return found


def _checksum(file: Path) -> int:
    checksum = 0
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK):
            checksum = zlib.crc32(block, checksum)
    return checksum
