"""Python stacks of a report: the program's lines, without what runs the program."""

from __future__ import annotations

import os
import runpy
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch.utils._traceback import CapturedTraceback

from torch_loom import _C

# Test runners and this package; `runpy` and frozen modules run a file or a module.
_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_RUNNERS = tuple(f"{os.sep}site-packages{os.sep}{name}{os.sep}" for name in ("_pytest", "pytest", "pluggy"))


def _runs_programs(file: str) -> bool:
    is_runner = file == runpy.__file__ or file.startswith(("<frozen ", _PACKAGE))
    return is_runner or any(runner in file for runner in _RUNNERS)


def _is_no_programs(file: str) -> bool:
    return _C.is_library_file(file) or _runs_programs(file)


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
    """Return ``file:line`` of the innermost frame outside of library files and test runners, or ``""``."""
    found = (_without(frames, _is_no_programs) or list(frames))[-1:]
    return f"{os.path.basename(found[0].filename)}:{found[0].lineno}" if found else ""
