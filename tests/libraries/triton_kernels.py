"""Triton kernels on the devices' memory: interpreted and compiled, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "triton_kernels"

pytest.importorskip("triton")


def run(program: str, interpret: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TRITON_INTERPRET": interpret}
    return subprocess.run(
        [sys.executable, str(PROGRAMS / program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
    )


def test_interpreted_kernels_run() -> None:
    done = run("kernels.py", "1")
    assert done.returncode == 0, done.stderr


def test_compiled_kernels_run() -> None:
    done = run("kernels.py", "0")
    assert done.returncode == 0, done.stderr


@pytest.mark.report("triton-lang/triton", "scalar arguments of a kernel are values with `.to`")
def test_scalar_arguments() -> None:
    done = run("scalars.py", "0")
    assert done.returncode == 0, done.stderr


@pytest.mark.report("linkedin/Liger-Kernel", "norm and loss of Liger's kernels")
def test_liger() -> None:
    pytest.importorskip("liger_kernel")
    done = run("liger.py", "0")
    assert done.returncode == 0, done.stderr


@pytest.mark.report("fla-org/flash-linear-attention", "recurrent linear attention")
def test_linear_attention() -> None:
    pytest.importorskip("fla")
    done = run("linear_attention.py", "0")
    assert done.returncode == 0, done.stderr
