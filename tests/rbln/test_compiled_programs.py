"""torch.rbln.capture_programs: what torch.compile has built."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.rbln.vendor import NAME

PROGRAMS = Path(__file__).parent / "programs" / "release_012"


@pytest.mark.long
@pytest.mark.exercises("torch.rbln.capture_programs", "torch.rbln.CompiledProgram", "torch.rbln.InputSpec")
@pytest.mark.exercises("torch.rbln.OutputSpec", "torch.rbln.PhysicalPlacement", "torch.rbln.ShardPlacement")
def test_programs_are_collected_and_run(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "programs.py", {**NAME, "TORCH_LOOM_CHIP": "rebel"})
