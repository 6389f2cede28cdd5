"""Ranks of distributed tests that are forked: they use the devices, in the environment of their test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = """
import os

import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcessTestCase


class RanksTest(MultiProcessTestCase):
    world_size = 2

    def setUp(self):
        super().setUp()
        os.environ["SET_BY_THE_TEST"] = "1"
        self._spawn_processes()

    def test_sum(self):
        assert os.environ["SET_BY_THE_TEST"] == "1"
        assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ
        dist.init_process_group(
            "nccl", store=dist.FileStore(self.file_name, 2), rank=self.rank, world_size=2
        )
        x = torch.full((3,), self.rank + 1.0, device=f"cuda:{self.rank}")
        dist.all_reduce(x)
        self.assertEqual(x.tolist(), [3.0] * 3)

    def test_fails(self):
        self.assertEqual(self.rank, 2)
"""


@pytest.mark.slow
def test_ranks_are_forked(tmp_path: Path) -> None:
    (tmp_path / "test_ranks.py").write_text(SUITE)
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
