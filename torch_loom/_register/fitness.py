"""Whether the extension fits the running PyTorch: found out from files, before it is loaded.

An extension that was built against another PyTorch, or that is damaged, may fail to load in any way: an
exception in a static initialiser, or a page that is not there, ends the process.
"""

from __future__ import annotations

import ast
import importlib
import mmap
import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from torch_loom import config, torch_version
from torch_loom._register import origin
from torch_loom._register.origin import repair
from torch_loom.config import settings
from torch_loom.errors import ExtensionError, LoomError, VersionMismatchError

__all__ = ["NAME", "check", "check_installed", "load", "load_failure", "lost_files", "repair", "with_repair"]

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = _PACKAGE / torch_version.EXTENSIONS
NAME = "torch_loom._C"
# A record has three lines.
_MAX_RECORD_BYTES = 4096


class _Record(NamedTuple):
    """What stands beside an extension."""

    version: str  # of the PyTorch that it was built against
    num_bytes: int
    checksum: int


def check(torch: ModuleType) -> Path:
    """Return the extension's file, or raise what is wrong with it.

    Args:
        torch: the running one.

    Raises:
        VersionMismatchError: it was built against another PyTorch, or this one is not known.
        ExtensionError: it is not there, or not as it was built.
        ConfigurationError: TORCH_LOOM_ANY_TORCH has a bad value.
    """
    return _check(str(torch.__version__), Path(str(torch.__file__)).parent)


def check_installed() -> None:
    """Raise as :func:`check` does for the PyTorch that would be imported, without importing it.

    Where none is found, that is not checked: the program says it better.

    Raises:
        ExtensionError: a file of the package is gone or empty, too.
    """
    if loss := lost_files():
        raise ExtensionError(loss)
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return
    folder = Path(spec.origin).parent
    if (version := version_in(folder)) is not None:
        _check(version, folder)


def lost_files() -> str:
    """Return a sentence on the package's files that are gone or empty; an empty text where all are there."""
    lost = origin.lost_files()
    if not lost:
        return ""
    found = f"{lost[0]} is" if len(lost) == 1 else f"{lost[0]} and {len(lost) - 1} more are"
    return f"{found} missing or empty. Install torch-loom again: `{repair()}`."


def version_in(folder: Path) -> str | None:
    """Return the version of the PyTorch in a folder, as its version.py says; None if that cannot be read."""
    try:
        text = (folder / "version.py").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    match = re.search(r"^__version__ = ['\"](.+)['\"]$", text, re.MULTILINE)
    return None if match is None else match[1]


def _check(running: str, folder: Path) -> Path:
    if refusal := torch_version.refusal(running, tries_any=config.value(settings.ANY_TORCH)):
        raise VersionMismatchError(refusal)
    if refusal := torch_version.platform_refusal(torch_version.this_platform()):
        raise ExtensionError(refusal)
    file = _find_extension(torch_version.minor_of(running))
    built = _record(file.parent)
    if not torch_version.have_one_abi(built.version, running):
        raise VersionMismatchError(_mismatch(built.version, running, folder))
    size = file.stat().st_size
    # An empty file cannot be mapped.
    if size == 0 or size != built.num_bytes or _checksum(file) != built.checksum:
        raise ExtensionError(
            f"{file} is damaged: it is not the file that was built ({size:,} bytes, of "
            f"{built.num_bytes:,}). Install it again: `{repair()}`."
        )
    return file


def _mismatch(built_with: str, running: str, folder: Path) -> str:
    folders = sorted(_folders())
    minors = folders or [torch_version.minor_of(built_with)]
    with_others = f"{len(minors)} versions of torch, the newest" if len(minors) > 1 else "torch"
    fitting = " or ".join(".".join(map(str, minor)) for minor in minors)
    start = (
        f"torch-loom was built against {with_others} {built_with}, but torch {running} is running ({folder})."
    )
    if folders or origin.is_wheel():
        # The same wheel would be installed again.
        return (
            f"{start} The wheel that is installed fits torch {fitting}: install torch {fitting}, a wheel for "
            f"the running one, or torch-loom from a checkout: `{origin.OPTIONS} CHECKOUT`."
        )
    return f"{start} Build it again: `{repair()}`; or install torch {fitting}."


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


def with_repair(error: Exception) -> Exception:
    """Return the error to raise for one that stopped the registration: one that says what mends it."""
    if isinstance(error, LoomError):
        return error  # which says what to do
    failure = ExtensionError(f"{type(error).__name__}: {error}. Install it again: `{repair()}`.")
    failure.__cause__ = error
    return failure


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
    if origin.is_checkout():
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


def _record(folder: Path) -> _Record:
    # Written beside the extension by setup.py. Read and not run, as it may be damaged, too.
    file = folder / "_built_with.py"
    found: dict[str, object] = {}
    try:
        if file.is_file() and file.stat().st_size <= _MAX_RECORD_BYTES:
            for line in ast.parse(file.read_bytes()).body:
                if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                    found[line.targets[0].id] = ast.literal_eval(line.value)
    except (OSError, SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        found = {}
    version, num_bytes, checksum = (
        found.get(name) for name in ("TORCH_VERSION", "EXTENSION_BYTES", "EXTENSION_CHECKSUM")
    )
    # By the type itself: True is an int.
    is_version = type(version) is str and torch_version.minor_of(version) != (0, 0)
    if not is_version or type(num_bytes) is not int or type(checksum) is not int:
        raise ExtensionError(
            f"{file} does not say which torch the extension was built against, and what it is. "
            f"Install torch-loom again: `{repair()}`."
        )
    return _Record(str(version), num_bytes, checksum)


def _checksum(file: Path) -> int:
    # Mapped, since reading would copy it, which takes longer than the sum.
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return torch_version.checksum(content)
