"""Forked children: an error in CUDA's words after first use, everything before it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "fork"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

SENTENCE = (
    "Cannot re-initialize LOOM in forked subprocess. To use LOOM with multiprocessing, "
    "you must use the 'spawn' start method"
)


@pytest.mark.exercises(
    "torch.cuda._is_in_bad_fork",
)
def test_use_after_fork(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "use_after_fork.py", given=SENTENCE)


def test_fork_before_first_use(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "fork_before_first_use.py")


@pytest.mark.long
def test_loader_workers_after_first_use(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "loader_workers_after_first_use.py")
