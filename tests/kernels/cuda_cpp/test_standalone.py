"""Programs of CUDA C++ with a ``main`` of their own, which nvcc links."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torch_loom.kernels.cuda_cpp import nvcc

PROGRAM = Path(__file__).parent / "programs" / "standalone"
RUN = [str(Path(sys.executable).with_name("loom")), "run", "--"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("standalone") / "sums"
    sources = [str(PROGRAM / name) for name in ("main.cu", "host.cpp")]
    subprocess.run([*RUN, "nvcc", "-O1", "-DkTwice=2", *sources, "-o", program], check=True, timeout=100)
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


def test_builds_find_the_toolkit_first() -> None:
    """By its name, as by the variables that makefiles read, whatever other toolkit there is."""
    done = subprocess.run(
        [*RUN, "sh", "-c", "command -v nvcc; echo $CUDA_HOME/bin/nvcc; echo $CUDA_PATH/bin/nvcc"],
        env={**os.environ, "CUDA_HOME": "/usr/local/cuda"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
        check=True,
    )
    (found,) = set(done.stdout.split())
    assert Path(found).is_file()


def test_programs_need_a_toolkit(capfd: pytest.CaptureFixture[str]) -> None:
    assert nvcc.main([str(PROGRAM / "main.cu"), "-o", "unwritten"]) == 2
    assert "-shared" in capfd.readouterr().err
