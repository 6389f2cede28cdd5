"""`loom run --local-ranks`: all ranks of a job on one machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "local_ranks" / "eight.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Unbuffered, the lines of ranks would run into one another.
    left_out = ("TORCH_LOOM_", "PYTHONUNBUFFERED")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    command = [sys.executable, "-m", "torch_loom.tools.cli", "run", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.slow
def test_eight_ranks() -> None:
    done = run("--local-ranks", "8", str(PROGRAM))
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 8 __main__" for rank in range(8)]


@pytest.mark.slow
def test_a_rank_that_fails_ends_all() -> None:
    done = run("--local-ranks", "2", str(PROGRAM), "fail")
    assert done.returncode == 7, done.stdout + done.stderr
    assert "rank 1 has ended with status 7" in done.stderr


def test_other_commands_are_refused() -> None:
    done = run("--local-ranks", "2", "--", "ls")
    assert done.returncode != 0
    assert "--local-ranks takes FILE.py" in done.stderr
