"""Programs of CUDA C++ with a ``main`` of their own, which nvcc links."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from torch_loom import _C
from torch_loom.kernels.cuda_cpp import nvcc, toolkit

PROGRAM = Path(__file__).parent / "programs" / "standalone"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = toolkit.make(Path(_C.__file__), is_checked=False, finds_races=False) / "bin" / "nvcc"
    program = tmp_path_factory.mktemp("standalone") / "sums"
    sources = [str(PROGRAM / name) for name in ("main.cu", "host.cpp")]
    subprocess.run([compiler, "-O1", "-DkTwice=2", *sources, "-o", program], check=True, timeout=100)
    return program


@pytest.mark.slow
def test_a_program_is_linked_and_runs(program: Path) -> None:
    done = _run(program, "-5", "7")
    parts = [sum(range(2, 16)) - 10 + 14, *(sum(range(first, first + 16)) for first in (16, 32, 48))]
    listed = " + ".join(map(str, parts))
    assert (done.stdout, done.returncode) == (f"0000:01:00.0: {sum(parts)} = {listed}\n", 7), done.stderr


@pytest.mark.slow
def test_launches_on_a_device_that_has_failed(program: Path) -> None:
    done = _run(program)
    assert (done.stdout, done.returncode) == ("cudaErrorIllegalAddress; cudaErrorIllegalAddress\n", 8)
    assert "an illegal memory access" in done.stderr


def _run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *words],
        capture_output=True,
        env={**os.environ, "TORCH_LOOM_MEMORY": "1GiB"},
        text=True,
        timeout=100,
        check=False,
    )


def test_programs_need_a_toolkit(capfd: pytest.CaptureFixture[str]) -> None:
    assert nvcc.main([str(PROGRAM / "main.cu"), "-o", "unwritten"]) == 2
    assert "-shared" in capfd.readouterr().err
