"""Programs of CUDA C++ with a ``main`` of their own, which nvcc links."""

from __future__ import annotations

import os
import shutil
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


@pytest.mark.slow
def test_a_lambda_of_the_device_is_an_argument(tmp_path: Path) -> None:
    program = tmp_path / "apply"
    source = str(PROGRAM / "device_lambda.cu")
    subprocess.run([*RUN, "nvcc", "-O1", source, "-o", program], check=True, timeout=100)
    assert _run(program).stdout == "3.5 93.5\n"


def _run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *words],
        capture_output=True,
        env={**os.environ, "TORCH_LOOM_MEMORY": "1GiB"},
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.long
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


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_cmake_finds_the_compiler_and_links_a_program(tmp_path: Path) -> None:
    """Of C++ and CUDA C++, whose code of the device CMake links in a step of its own."""
    build = tmp_path / "build"
    configure = ["cmake", "-S", str(PROGRAM), "-B", str(build), "-DCMAKE_CXX_COMPILER=nvcc"]
    for line in ([*RUN, *configure], ["cmake", "--build", str(build)]):
        done = subprocess.run(line, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    parts = [sum(range(first, first + 16)) for first in (0, 16, 32, 48)]
    done = _run(build / "sums", "1", "2")
    assert (done.stdout.split(": ")[1].split(" ")[0], done.returncode) == (str(sum(parts) + 5), 7), done


@pytest.mark.long
def test_libraries_and_files_of_options(tmp_path: Path) -> None:
    source, archive = tmp_path / "kernel.cpp", tmp_path / "libkernel.a"
    source.write_text("__global__ void k(int* x) { *x = 1; }\nvoid go(int* x) { k<<<1, 1>>>(x); }\n")
    options = tmp_path / "options.rsp"
    options.write_text(f"-x cu --expt-relaxed-constexpr '{source}'\n")
    assert nvcc.main(["-lib", "--options-file", str(options), "-o", str(archive)]) == 0
    assert archive.read_bytes().startswith(b"!<arch>\n")
    linked = tmp_path / "linked.o"
    assert nvcc.main(["-dlink", str(archive), "-o", str(linked)]) == 0
    assert linked.is_file()
    assert nvcc.main(["-c", "--options-file", str(tmp_path / "none.rsp")]) == 2
    options.write_text(f"-c --options-file {options}")
    assert nvcc.main(["--options-file", str(options)]) == 2


def test_programs_need_a_toolkit(capfd: pytest.CaptureFixture[str]) -> None:
    assert nvcc.main([str(PROGRAM / "main.cu"), "-o", "unwritten"]) == 2
    assert "-shared" in capfd.readouterr().err
