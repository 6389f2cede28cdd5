"""torch-loom's entry point of the group ``torch.backends``, which `import torch` calls.

A module beside the package: PyTorch ends the import of torch where an entry point cannot be imported, and the
package's own files may be damaged or gone.
"""

from __future__ import annotations

import sys
import warnings

_REPAIR = "pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir torch-loom"


def register() -> None:
    """Register the devices, and let libraries learn their name. Never raises: a failure is one warning."""
    try:
        import torch_loom

        torch_loom._autoload()
        from torch_loom import compat

        compat._autoload()
    except (Exception, SystemExit) as error:
        # The package reports by itself what it can.
        kind = type(error).__name__
        message = f"torch-loom is not available: {kind}: {error}. Install it again: `{_REPAIR}`."
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        except Warning:
            print(message, file=sys.stderr)
