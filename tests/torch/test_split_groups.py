"""Process groups split from others, as 2-D meshes do where the default group is bound to a device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "split_groups"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "backend"),
    [("cuda", "nccl"), ("cuda", "cpu:gloo,cuda:nccl"), ("loom", "cpu:gloo,loom:gloo")],
    ids=["nccl", "gloo beside nccl", "gloo"],
)
def test_four_ranks_split_into_pairs_in_two_ways(tmp_path: Path, name: str, backend: str) -> None:
    environment = {
        **os.environ,
        "TORCH_LOOM_DEVICE_NAME": name,
        "TORCH_LOOM_DEVICES": "4",
        "TORCH_LOOM_MEMORY": "1GiB",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(PROGRAMS / "ranks.py"), name, backend, str(tmp_path / "store")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert result.stdout == "[0, 0, 0, 0]\n", result.stderr
