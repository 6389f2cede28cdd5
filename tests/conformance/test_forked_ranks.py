"""Ranks of distributed tests that are forked: they use the devices, in the environment of their test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = Path(__file__).parent / "programs" / "suite_of_ranks.py"


@pytest.mark.slow
def test_ranks_are_forked(tmp_path: Path) -> None:
    (tmp_path / "test_ranks.py").write_text(SUITE.read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-m", "torch_loom.tools.cli", "run", "--devices", "2", "-m", "pytest", "-q"]
    command += [
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.conformance.suite_plugin",
        "--fork-ranks",
        "-o",
        "addopts=",
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "test_ranks.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "2 are not equal" in done.stdout or "Expected 2 but got" in done.stdout, done.stdout
