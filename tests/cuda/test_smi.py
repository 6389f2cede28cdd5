"""`loom smi`: what it says of the devices and who uses them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torch_loom import chips

PROGRAMS = Path(__file__).parent / "programs" / "smi"

NAME = {
    "TORCH_LOOM_DEVICE_NAME": "cuda",
    "TORCH_LOOM_MEMORY": "2GiB",
    "TORCH_LOOM_DEVICES": "2",
    "TORCH_LOOM_MACHINE": "smi_test",
}


@pytest.mark.slow
def test_smi_shows_who_uses_a_device() -> None:
    env = {**os.environ, **NAME}
    command = [sys.executable, str(PROGRAMS / "user.py"), "1"]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdin is not None
        assert user.stdout is not None
        assert user.stdout.readline() == "True\n"
        smi = [sys.executable, "-m", "torch_loom.tools.cli", "smi"]
        table = subprocess.run(smi, env=env, capture_output=True, text=True, check=True).stdout
        text = subprocess.run([*smi, "--json"], env=env, capture_output=True, text=True, check=True).stdout
        user.communicate("\n")
    first, second = json.loads(text)["devices"]
    assert (first["name"], first["memory_total_bytes"], first["processes"]) == ("NVIDIA H200", 2 << 30, {})
    assert second["processes"] == {str(user.pid): 120 << 20}
    assert second["memory_used_bytes"] == 120 << 20
    assert "120MiB / 2048MiB" in table
    assert f"PID {user.pid:>9}" in table
    assert len({len(line) for line in table.splitlines() if line}) == 1


@pytest.mark.slow
def test_smi_shows_the_chips_of_those_who_use_them() -> None:
    """In another shell its own settings say nothing of a program under `loom run`."""
    machine = {"TORCH_LOOM_MACHINE": "smi_test_of_others"}
    env = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_LOOM_")} | machine
    theirs = {**env, "TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_CHIP": "a100", "TORCH_LOOM_DEVICES": "3"}
    smi = [sys.executable, "-m", "torch_loom.tools.cli", "smi"]
    command = [sys.executable, str(PROGRAMS / "user.py"), "2"]
    with subprocess.Popen(
        command, env=theirs, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as user:
        assert user.stdin is not None
        assert user.stdout is not None
        assert user.stdout.readline() == "True\n"
        text = subprocess.run([*smi, "--json"], env=env, capture_output=True, text=True, check=True).stdout
        table = subprocess.run(smi, env=env, capture_output=True, text=True, check=True).stdout
        user.communicate("\n")
    first, _, used = json.loads(text)["devices"]
    assert first["name"] == "loom1"
    a100 = chips.load("a100")
    assert (used["index"], used["name"], used["processes"]) == (
        2,
        a100.product_name,
        {str(user.pid): 544 + 120 << 20},  # the context, in pages of 2 MiB, and tensors
    )
    assert used["memory_total_bytes"] == a100.total_memory_bytes
    assert used["power_limit_milliwatts"] == 1000 * a100.power_max_watts
    assert used["uuid"] not in (first["uuid"], "")
    assert f"664MiB / {a100.total_memory_bytes >> 20}MiB" in table
