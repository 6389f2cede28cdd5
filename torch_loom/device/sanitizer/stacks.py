"""Python stacks of a report: the program's lines, without what runs the program."""

from __future__ import annotations

import os
import runpy
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils._traceback import CapturedTraceback

__all__ = ["program_frames", "program_line"]

_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_TORCH = str(Path(torch.__file__).parent) + os.sep
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_SITE_PACKAGES = f"{os.sep}site-packages{os.sep}"
# Test runners; ``runpy`` and frozen modules run a file or a module.
_RUNNERS = tuple(f"{_SITE_PACKAGES}{name}{os.sep}" for name in ("_pytest", "pytest", "pluggy"))


def _runs_programs(file: str) -> bool:
    is_runner = file == runpy.__file__ or file.startswith(("<frozen ", _PACKAGE))
    return is_runner or any(runner in file for runner in _RUNNERS)


def _is_librarys(file: str) -> bool:
    in_standard_library = file.startswith(_STANDARD_LIBRARY) and _SITE_PACKAGES not in file
    return in_standard_library or file.startswith(_TORCH) or _runs_programs(file)


def _without(
    frames: Iterable[traceback.FrameSummary], is_left_out: Callable[[str], bool]
) -> list[traceback.FrameSummary]:
    return [frame for frame in frames if not is_left_out(frame.filename)]


def program_frames(stack: Any) -> traceback.StackSummary:
    """Return a captured stack, the innermost frame last, without frames of test runners and of this package.

    All frames, where no other is left.
    """
    frames: traceback.StackSummary = CapturedTraceback(stack).summary()  # type: ignore[no-untyped-call]
    return traceback.StackSummary.from_list(_without(frames, _runs_programs) or frames)


def program_line(frames: traceback.StackSummary) -> str:
    """Return ``file:line`` of the innermost frame outside of PyTorch and the standard library, or ``""``."""
    found = (_without(frames, _is_librarys) or list(frames))[-1:]
    return f"{os.path.basename(found[0].filename)}:{found[0].lineno}" if found else ""
