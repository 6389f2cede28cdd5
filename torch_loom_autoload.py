"""torch-loom's entry points: of the group ``torch.backends``, which `import torch` calls, and the command.

A module beside the package: PyTorch ends the import of torch where an entry point cannot be imported, and the
package's own files may be damaged or gone.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings

_REPAIR = "pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir torch-loom"


def register() -> None:
    """Register the devices, and let libraries learn their name.

    Raises nothing: a failure is one warning. Under TORCH_LOOM_REQUIRED=1 it then ends the program.
    """
    failure: BaseException | None
    try:
        import torch_loom

        torch_loom._autoload()  # which reports by itself
        failure = torch_loom._failure
        from torch_loom import compat

        compat._autoload()
    except (Exception, SystemExit) as error:
        failure = error
        _warn(sentence(error))
    if failure is not None and os.environ.get("TORCH_LOOM_REQUIRED") == "1":
        sys.exit("the program was started with the devices of torch-loom, which are not available")


def command() -> None:
    """Run the command ``loom``."""
    try:
        importlib.import_module("torch_loom.errors")  # which main() imports
        from torch_loom.tools.cli import main
    except (Exception, SystemExit) as error:
        sys.exit(sentence(error))
    main()


def sentence(error: BaseException) -> str:
    """Return what is wrong with a package that cannot be imported, and what repairs it."""
    return f"torch-loom is not available: {type(error).__name__}: {error}. Install it again: `{_REPAIR}`."


def _warn(message: str) -> None:
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except Warning:
        # The interpreter turns warnings into errors; the import of torch must go on all the same.
        print(message, file=sys.stderr)
