"""Tensors between processes under CUDA's name, where PyTorch asks a storage for CUDA's own handles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "sharing"


@pytest.mark.slow
def test_every_layout_travels() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAMS / "every_layout.py")],
        env={
            **os.environ,
            "TORCH_LOOM_DEVICE_NAME": "cuda",
            "TORCH_LOOM_MEMORY": "1GiB",
            "TORCH_LOOM_DEVICES": "2",
        },
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:6] == ["15.0", "0.0", "4.0", "5.0", "3.0", "2.0"]
    assert "only available on CUDA" in done.stdout.splitlines()[6]
