"""``init_process_group("nccl")`` under CUDA's name, in two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "nccl_group"


# What NCCL takes and gloo refuses, and what NCCL refuses and gloo does not.


@pytest.mark.slow
@pytest.mark.parametrize("program", ["whole", "not_as_gloo", "a_rank_that_ends"])
def test_collectives_messages_and_sharding(tmp_path: Path, program: str) -> None:
    settings = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB", "TORCH_LOOM_DEVICES": "2"}
    environment = {**os.environ, **settings, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(PROGRAMS / f"{program}.py")]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")],
            env={**environment, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        results = [rank.communicate(timeout=55) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for output, errors in results:
        assert output == "done\n", errors
