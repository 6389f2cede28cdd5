"""Which files a program calls and did not write: their lines are not where a finding is reported."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import torch
import typing_extensions


def prefixes() -> list[tuple[str, bool]]:
    """Return how the names of files begin, and whether such files are a library's, the longest first.

    Packages that are installed are the program's: a user may well want to know that such a package waits.
    """
    standard = Path(os.__file__).parent
    # Its launches are the program's, whose lines are where they are called.
    triton = getattr(sys.modules.get("triton"), "__file__", None)
    folders = {
        **({str(Path(triton).parent): True} if triton else {}),
        str(Path(torch.__file__).parent): True,
        str(Path(__file__).parents[1]): True,
        str(standard / "site-packages"): False,
        str(standard / "dist-packages"): False,
        str(standard): True,
    }
    found = {folder + os.sep: is_library for folder, is_library in folders.items()}
    # A file or a module that Python runs; the former may stand elsewhere than the standard library.
    found |= {"<frozen ": True, runpy.__file__: True}
    # Through which PyTorch's functions that are deprecated are called.
    found[typing_extensions.__file__] = True
    return sorted(found.items(), key=lambda each: -len(each[0]))
