"""The environment of a program under `loom run`, without the second that starting one takes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import forking
from torch_loom import config
from torch_loom.nvml import description

WITHOUT_TORCH = Path(__file__).parent / "programs" / "without_torch.py"
Environment = Callable[..., dict[str, str]]
Program = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def under_loom_run(monkeypatch: pytest.MonkeyPatch) -> Environment:
    """``under_loom_run(TORCH_LOOM_CHIP="a100")``: the environment under settings, on another machine."""

    def make(**settings: str) -> dict[str, str]:
        machine = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MACHINE": f"nvml_test_{os.getpid()}"}
        fixed = {"TORCH_LOOM_DEVICES": "2", "TORCH_LOOM_CUDA_VERSION": "13.0"}
        wanted = forking.environment({**machine, **fixed, **settings})
        for name in set(os.environ) - set(wanted):
            monkeypatch.delenv(name)
        for name, value in wanted.items():
            monkeypatch.setenv(name, value)
        description.export(config.resolve())
        description.offer()
        made = dict(os.environ)
        monkeypatch.undo()
        return made

    return make


@pytest.fixture
def run_without_torch() -> Program:
    """``run_without_torch(program, env)``: run a file, which may import pynvml and must not import torch."""

    def run(program: Path, env: dict[str, str], given: object = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(WITHOUT_TORCH), *forking.arguments(program, given)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        return forking.checked(done, True)

    return run
