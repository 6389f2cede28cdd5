"""Memory that ranks of one machine map of one another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAM = Path(__file__).parent / "programs" / "symmetric_memory.py"
SETTINGS = {"TORCH_LOOM_DEVICES": "3", "TORCH_LOOM_MEMORY": "256MiB", "OMP_NUM_THREADS": "1"}
SETTINGS["TORCH_LOOM_CLOCK"] = "simulated"


@pytest.mark.long
def test_memory_of_other_ranks_and_signals(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAM, SETTINGS, given=("loom", 3))


@pytest.mark.long
def test_the_same_under_the_name_cuda(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAM, SETTINGS, given=("cuda", 2))
