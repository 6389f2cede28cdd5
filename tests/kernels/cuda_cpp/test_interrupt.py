"""Ctrl-C ends a program whose kernel does not end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "endless.py"


@pytest.mark.slow
def test_a_kernel_that_does_not_end(tmp_path: Path) -> None:
    env = {**os.environ, "TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_KERNEL_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(
        [sys.executable, str(PROGRAM)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "running\n"
        program.send_signal(signal.SIGINT)
        try:
            _, errors = program.communicate(timeout=60)
        finally:
            program.kill()
    assert program.returncode == -signal.SIGINT
    assert "a kernel still runs" in errors
