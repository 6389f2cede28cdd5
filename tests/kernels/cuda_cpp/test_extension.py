"""Extensions of PyTorch with CUDA sources, built and used as programs do it, under the name cuda."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "extension"


def run(arguments: list[str], cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    settings = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "MAX_JOBS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **settings, **env},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_extensions_are_built_and_used(tmp_path: Path) -> None:
    folder = tmp_path / "build"
    folder.mkdir()
    done = run([str(PROGRAMS / "build.py"), repr((str(folder),))], tmp_path)
    assert done.stdout.splitlines()[-1] == "done"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_setup_file_and_libraries_of_cuda(tmp_path: Path) -> None:
    """Of a C++ and two CUDA sources.

    cuBLAS, PyTorch's generator, kernels by address, variables that two sources call alike.
    """
    for file in (PROGRAMS / "libraries").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    checks = {"TORCH_LOOM_CHECK_KERNELS": "1"}
    run(["setup.py", "build_ext", "--inplace"], tmp_path, **checks)
    assert run(["use.py"], tmp_path, **checks).stdout.splitlines()[-1] == "done"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_stable_interface_of_pytorch(tmp_path: Path) -> None:
    for file in (PROGRAMS / "stable").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert run(["use.py"], tmp_path).stdout.splitlines()[-1] == "done"


def test_nvcc_names_what_it_refuses(tmp_path: Path) -> None:
    """As a build sees it: the line of the source, and a status that ends the build."""
    source = PROGRAMS / "refused.cu"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch_loom.kernels.cuda_cpp.nvcc",
            "-c",
            str(source),
            "-o",
            str(tmp_path / "x.o"),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2
    assert f"{source}:4: error: inline PTX 'mma.sync" in done.stderr
    version = subprocess.run(
        [sys.executable, "-m", "torch_loom.kernels.cuda_cpp.nvcc", "-V"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "release " in version.stdout
