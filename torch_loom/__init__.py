"""torch-loom: a virtual accelerator.

``import torch`` is enough; the device is ``"loom"``, its module is ``torch.loom``.
``import torch_loom.as_cuda``, before torch, makes the devices CUDA's.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

# What went wrong at registration, or None; the same error is raised when a device is first used.
_failure: Exception | None = globals().get("_failure")
_done = bool(globals().get("_done", False))  # importlib.reload() keeps what was registered


def _autoload() -> None:
    """Register the device with PyTorch, once. The entry point ``torch_loom_autoload`` calls it.

    Raises nothing: ``import torch`` must not fail because of this package. A failure is reported in one
    warning, and raised when a device is first used.
    """
    global _done, _failure
    if _done:
        return
    _done = True
    try:
        from torch_loom._register import register

        _failure = register()
    except (Exception, SystemExit) as error:
        _failure = error if isinstance(error, Exception) else _ended(error)
    if _failure is not None:
        _warn(_sentence(_failure))


def _warn_once(error: BaseException) -> None:
    """Warn of what failed after the devices were registered; not where those failed, which has been said."""
    if _failure is not None:
        return
    if _is_own(error):
        _warn(f"torch-loom: {error}")  # a setting that only what comes afterwards reads
    else:
        _warn(_sentence(error if isinstance(error, Exception) else _ended(error)))


def _ended(error: BaseException) -> Exception:
    # A damaged file may do anything, as end the interpreter; the program goes on.
    return RuntimeError(f"a file of the package raised {error!r}")


def _is_own(error: BaseException) -> bool:
    # Without importing torch_loom.errors, which may be what is damaged.
    return any(kind.__name__ == "LoomError" for kind in type(error).__mro__)


def _sentence(failure: Exception) -> str:
    if _is_own(failure):
        return f"torch-loom is not available: {failure}"  # which says what to do
    repair = "pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir torch-loom"
    try:
        from torch_loom._register import origin

        repair = origin.repair()
    except (Exception, SystemExit):
        pass  # damaged, too
    kind = type(failure).__name__
    return f"torch-loom is not available: {kind}: {failure}. Install it again: `{repair}`."


def _warn(message: str) -> None:
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except Warning:
        # The interpreter turns warnings into errors; the import of torch must go on all the same.
        print(message, file=sys.stderr)


# The import of torch calls _autoload, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0: then importing this package
# does. It imports no torch itself, so that torch_loom.as_cuda can come first.
if "torch" in sys.modules:
    _autoload()


def include_path() -> str:
    """Return the folder of the headers for code outside of this package.

    ``loom_memory.h`` is for C libraries that provide or use device memory, ``driver/driver.h`` for drivers in
    libraries of their own (docs/drivers.md).
    """
    from pathlib import Path

    return str(Path(__file__).parent / "include")


_MODULES = (
    "chips",
    "compiler",
    "config",
    "errors",
    "image",
    "numerics",
    "ops",
    "pipeline",
    "pybuda",
    "tools",
)
_NAMES = ("Executable", "compile", "__version__")


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_MODULES})


def __getattr__(name: str) -> Any:
    # Imported and read when asked for: import reads no file but code, and an image runs without the compiler.
    if name == "Executable":
        from torch_loom.image.executable import Executable

        return Executable
    if name == "compile":
        from torch_loom.compiler.api import compile_module

        return compile_module
    if name == "__version__":
        from importlib.metadata import version

        return version("torch-loom")
    if name in _MODULES:
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
