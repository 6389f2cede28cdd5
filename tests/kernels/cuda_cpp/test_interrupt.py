"""Ctrl-C ends a program whose kernel does not end, and what ends a build leaves nothing of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torch_loom.kernels.cuda_cpp import nvcc

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.slow
def test_a_kernel_that_does_not_end(tmp_path: Path) -> None:
    env = {**os.environ, "TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_KERNEL_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "endless.py")],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
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


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_compilation_that_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    source, folder = tmp_path / "x.cu", tmp_path / "temporary"
    source.touch()
    folder.mkdir()
    env = {**os.environ, "CXX": str(PROGRAMS / "endless_compiler.sh"), "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "torch_loom.kernels.cuda_cpp.nvcc", "-c", str(source)]
    with subprocess.Popen(
        command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as build:
        assert build.stdout is not None
        assert build.stdout.readline() == "running\n"
        assert [*folder.iterdir()]
        build.send_signal(number)
        try:
            _, errors = build.communicate(timeout=60)  # which the compiler, were it left, would keep open
        finally:
            build.kill()
    assert (build.returncode, errors) == (128 + number, "")
    assert not [*folder.iterdir()]


def test_processes_are_found_behind_those_that_start_them() -> None:
    """Also where subprocess does not know them yet."""
    command = ["sh", "-c", "sleep 1000 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        sleeper = int(shell.stdout.readline())
        try:
            started = nvcc._started_by(os.getpid(), nvcc._parents())
        finally:
            os.kill(sleeper, signal.SIGKILL)
    assert started.index(shell.pid) < started.index(sleeper)
