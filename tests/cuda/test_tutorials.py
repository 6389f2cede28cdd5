"""Fifty programs in the shapes of PyTorch's tutorials: cuda's losses are the CPU's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("tutorials.py")


def losses(name: str) -> tuple[str, dict[str, float]]:
    env = {**os.environ, "TORCH_LOOM_DEVICE_NAME": name, "TORCH_LOOM_MEMORY": "2GiB", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], env=env, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    return found["device"], found["losses"]


@pytest.mark.slow
def test_losses_are_the_cpus() -> None:
    (device, on_device), (plain, on_cpu) = losses("cuda"), losses("loom")
    assert (device, plain) == ("cuda", "cpu")
    assert len(on_cpu) >= 50
    # Half precision rounds in other places: autocast's lists for cuda are others than for the CPU.
    tolerances = {name: 0.05 if name.startswith("mixed") else 1e-4 for name in on_cpu}
    wrong = {
        name: (on_device[name], loss)
        for name, loss in on_cpu.items()
        if not abs(on_device[name] - loss) <= tolerances[name] * max(1.0, abs(loss))
    }
    assert wrong == {}
