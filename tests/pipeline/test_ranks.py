"""One program in several processes: the same numbers as in one, and the end of one process is an error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "ranks"

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 55


# The second stage ends its process, or raises, at its third micro-batch.


def environment(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    return {**plain, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TORCH_LOOM_DEVICES": "2", **more}


def torchrun(program: Path, *arguments: str, processes: int) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [*command, str(program), *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.slow
def test_a_gpt_over_two_processes_is_the_one_over_one(tmp_path: Path) -> None:
    program = PROGRAMS / "gpt.py"
    alone = subprocess.Popen([sys.executable, str(program), str(tmp_path)], env=environment())
    try:
        torchrun(program, str(tmp_path), processes=2)
        assert alone.wait(LIMIT_SECONDS) == 0
    finally:
        alone.kill()
    expected = json.loads((tmp_path / "ranknone.json").read_text())
    for rank in (0, 1):
        assert json.loads((tmp_path / f"rank{rank}.json").read_text()) == expected, "bit for bit"
    assert expected[3] == ["chip0", "chip1", "cpu"]


def failed(tmp_path: Path, how: str) -> tuple[list[int], list[Any]]:
    """Exit statuses of two processes, and what the first one told."""
    program = PROGRAMS / "failing.py"
    ranks = [
        subprocess.Popen([sys.executable, str(program), str(tmp_path), how], env=environment(RANK=str(rank)))
        for rank in (0, 1)
    ]
    try:
        codes = [rank.wait(LIMIT_SECONDS) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return codes, json.loads((tmp_path / "rank0.json").read_text())


@pytest.mark.slow
def test_a_killed_rank_is_an_error_elsewhere(tmp_path: Path) -> None:
    codes, (got, names, text, again, ended, cause) = failed(tmp_path, "kill")
    assert codes == [0, -signal.SIGKILL]
    assert len(got) <= 2
    assert "StageError" in names
    assert "stage 'second' failed" in text
    assert "rank 1 was killed or cannot be reached" in text
    assert cause == "RankError"
    assert again == "StageError", "a call raises it too"
    assert ended


@pytest.mark.slow
def test_an_error_of_a_rank_is_the_same_error_elsewhere(tmp_path: Path) -> None:
    codes, (got, names, text, again, ended, cause) = failed(tmp_path, "raise")
    assert codes == [0, 0]
    assert len(got) <= 2
    assert {"StageError", "ValueError"} <= set(names)
    assert "ValueError: too wide" in text
    assert 'raise ValueError("too wide")' in text, "the traceback of the other process"
    assert (again, cause, ended) == ("StageError", "ValueError", True)
    assert json.loads((tmp_path / "rank1.json").read_text())[2] == text
