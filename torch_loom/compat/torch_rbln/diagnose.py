"""What stands in the way of the device, if anything: ``python -m torch_rbln.diagnose``.

With ``TORCH_RBLN_DIAGNOSE=1`` the package imports nothing of torch first, so that this runs even where that
fails.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import traceback
from pathlib import Path

from torch_loom import config
from torch_loom.errors import ConfigurationError

__all__ = ["main"]


def main() -> int:
    """Print versions, settings, and whether a device can be used; return the exit status."""
    print("Running torch-rbln environment diagnostics...", file=sys.stderr)
    print(f"Python {platform.python_version()} ({sys.executable}), {platform.platform()}")
    for package in ("torch-loom", "torch"):
        print(f"{package} {_version_of(package)}")
    folder = Path(config.__file__).parents[1]
    print(f"torch_loom is {folder}")
    found = [path.name for path in sorted(folder.glob("_C*"))]
    print(f"The extension: {', '.join(found) or 'not built'}")
    _print_settings()
    return _try_device()


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "is not installed"


def _print_settings() -> None:
    print("Settings:")
    for setting in config.SETTINGS:
        text, source = config.raw_value(setting)
        if source != "default":
            print(f"  {setting.env}={text}")


def _try_device() -> int:
    try:
        config.resolve()
    except ConfigurationError as error:
        print(f"A setting cannot be used: {error}")
        return 1
    try:
        import torch

        name = config.device_name()
        torch.ones(1, device=name).add_(1)
    except Exception:
        print(f"The device cannot be used:\n{traceback.format_exc()}")
        return 1
    print(f"The device works: {torch.get_device_module(name).get_device_name()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
