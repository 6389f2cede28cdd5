"""Which files are no program's: one answer, in Python and in C++."""

from __future__ import annotations

import os
import runpy
import traceback
from pathlib import Path

import pytest
import torch

import torch_loom
from torch_loom import _C
from torch_loom.device.sanitizer import stacks

TORCH = str(Path(torch.__file__).parent)
OWN = str(Path(torch_loom.__file__).parent)
STANDARD = os.path.dirname(os.__file__)


@pytest.mark.parametrize(
    ("file", "is_library"),
    [
        (f"{TORCH}/nn/modules/linear.py", True),
        (f"{OWN}/device/streams/stream.py", True),
        (f"{STANDARD}/threading.py", True),
        (runpy.__file__, True),
        ("<frozen runpy>", True),
        (f"{STANDARD}/site-packages/transformers/trainer.py", False),
        (f"{STANDARD}/dist-packages/transformers/trainer.py", False),
        (f"{TORCH}_geometric/nn.py", False),
        (f"{OWN}er/train.py", False),
        (__file__, False),
        ("<stdin>", False),
        ("", False),
    ],
)
def test_files(file: str, is_library: bool) -> None:
    assert _C.is_library_file(file) is is_library
    program = traceback.FrameSummary("the_program.py", 3, "main")
    line = stacks.program_line(
        traceback.StackSummary.from_list([program, traceback.FrameSummary(file, 7, "f")])
    )
    assert line == ("the_program.py:3" if is_library else f"{os.path.basename(file)}:7")
