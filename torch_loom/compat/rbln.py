"""The package of Rebellions' extension: `import torch_rbln` finds :mod:`torch_loom.compat.torch_rbln`.

It is installed under the device name rbln: when an interpreter starts, by ``torch_loom_rbln.pth``, which the
wheel puts beside the packages, or else when torch is imported. It gives way to the vendor's own package.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

__all__ = ["install"]

_NAME = "torch_rbln"
_FOLDER = Path(__file__).with_name(_NAME)


class _Finder:
    """Finds the package, and nothing else."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _NAME:
            return None
        return importlib.util.spec_from_file_location(
            _NAME, _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
        )


def install() -> None:
    """Let `import torch_rbln` be found from now on, unless there is another package of that name."""
    if _Finder not in sys.meta_path:
        # At the end: other finders come first.
        sys.meta_path.append(_Finder)
