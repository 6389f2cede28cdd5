"""Whether the extension fits the running PyTorch: found out from files, before it is loaded.

An extension that was built against another PyTorch, or that is damaged, may fail to load in any way: an
exception in a static initialiser, or a page that is not there, ends the process.
"""

from __future__ import annotations

import importlib
import json
import mmap
import runpy
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

from torch_loom import config, torch_version
from torch_loom.config import settings
from torch_loom.errors import ExtensionError, VersionMismatchError

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = _PACKAGE / torch_version.EXTENSIONS
NAME = "torch_loom._C"


def check(torch: ModuleType) -> Path:
    """Return the extension's file, or raise what is wrong with it.

    Args:
        torch: the running one.

    Raises:
        VersionMismatchError: it was built against another PyTorch, or this one is not known.
        ExtensionError: it is not there, or not as it was built.
        ConfigurationError: TORCH_LOOM_ANY_TORCH has a bad value.
    """
    running = str(torch.__version__)
    if refusal := torch_version.refusal(running, tries_any=config.value(settings.ANY_TORCH)):
        raise VersionMismatchError(refusal)
    if refusal := torch_version.platform_refusal(torch_version.this_platform()):
        raise ExtensionError(refusal)
    file = _find_extension(torch_version.minor_of(running))
    built = _record(file.parent)
    built_with = str(built["TORCH_VERSION"])
    if not torch_version.have_one_abi(built_with, running):
        minors = sorted(_folders()) or [torch_version.minor_of(built_with)]
        with_others = f"{len(minors)} versions of torch, the newest" if len(minors) > 1 else "torch"
        raise VersionMismatchError(
            f"torch-loom was built against {with_others} {built_with}, but torch {running} is running "
            f"({Path(str(torch.__file__)).parent}). Build it again: `{repair()}`; or install torch "
            f"{' or '.join(_text(minor) for minor in minors)}."
        )
    size = file.stat().st_size
    if size != built["EXTENSION_BYTES"] or _checksum(file) != built["EXTENSION_CHECKSUM"]:
        raise ExtensionError(
            f"{file} is damaged: it is not the file that was built ({size:,} bytes, of "
            f"{built['EXTENSION_BYTES']:,}). Install it again: `{repair()}`."
        )
    return file


def load(file: Path) -> ModuleType:
    """Load the extension, under its one name wherever it stands."""
    if file.parent != _PACKAGE and NAME not in sys.modules:
        spec = spec_from_file_location(NAME, file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[NAME] = module
        package, name = NAME.split(".")
        setattr(sys.modules[package], name, module)
    return importlib.import_module(NAME)


def load_failure(error: BaseException, torch: ModuleType) -> ExtensionError:
    """Return the error to raise where the extension could not be loaded."""
    return ExtensionError(
        f"The extension torch_loom._C could not be loaded into torch {torch.__version__} ({error}). "
        f"Build it again: `{repair()}`."
    )


def repair() -> str:
    """Return the command that builds the package again, against the torch that is installed."""
    import shlex  # here: most programs need no repair

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


def _text(minor: torch_version.Minor) -> str:
    return ".".join(map(str, minor))


def _folders() -> dict[torch_version.Minor, Path]:
    found = {
        torch_version.minor_of(path.name.removeprefix("torch")): path for path in _FOLDERS.glob("torch*")
    }
    return {minor: path for minor, path in found.items() if _in_folder(path) is not None}


def _in_folder(folder: Path) -> Path | None:
    files = (folder / f"_C{suffix}" for suffix in EXTENSION_SUFFIXES)
    return next((file for file in files if file.exists()), None)


def _find_extension(running: torch_version.Minor) -> Path:
    if (file := _in_folder(_PACKAGE)) is not None:
        return file
    if folders := _folders():
        # The newest stands for all where there is none for this one: it says what there is.
        file = _in_folder(folders.get(running) or folders[max(folders)])
        assert file is not None
        return file
    if _is_checkout():
        raise ExtensionError(
            f"{_PACKAGE.parent} has torch-loom's sources without the compiled extension, and Python imports "
            "them. Start Python in another folder to import what is installed, or build the extension here: "
            "`pip install --no-build-isolation -e .`"
        )
    others = sorted(
        {
            file.name
            for pattern in ("_C.*.so", f"{torch_version.EXTENSIONS}/*/_C.*.so")
            for file in _PACKAGE.glob(pattern)
        }
    )
    raise ExtensionError(
        f"{_PACKAGE} has no extension for this Python ({EXTENSION_SUFFIXES[0]}): there is "
        f"{', '.join(others) or 'none'}. Install torch-loom with this Python: `{repair()}`."
    )


def _record(folder: Path) -> dict[str, Any]:
    # Written beside the extension by setup.py. Not imported: that might find another copy of the package.
    file = folder / "_built_with.py"
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
    # Mapped, since reading would copy it, which takes longer than the sum.
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return torch_version.checksum(content)
