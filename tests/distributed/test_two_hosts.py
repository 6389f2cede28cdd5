"""Groups across hosts, for which two network namespaces of this machine stand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
NAMESPACES = ["unshare", "--user", "--map-root-user", "--net"]


def missing() -> str:
    """Return why this machine cannot have two hosts; "" if it can."""
    for command in ("unshare", "nsenter", "ip"):
        if shutil.which(command) is None:
            return f"there is no command {command}"
    done = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True, timeout=20, check=False)
    return done.stderr.strip()


@pytest.mark.slow
def test_torchrun_on_two_hosts() -> None:
    if reason := missing():
        pytest.skip(f"namespaces of users and networks: {reason}")
    environment = {**os.environ, "TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB"}
    command = [*NAMESPACES, sys.executable]
    command += [str(PROGRAMS / "two_hosts.py"), str(PROGRAMS / "rank_of_two_hosts.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
