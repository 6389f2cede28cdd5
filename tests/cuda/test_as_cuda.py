"""The devices as CUDA's: programs that say cuda run unchanged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "as_cuda"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}


@pytest.mark.slow
def test_tensors_are_cudas(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "tensors_are_cudas.py", NAME)


@pytest.mark.slow
def test_training_under_autocast(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "training_under_autocast.py", NAME)


@pytest.mark.slow
def test_softmax_converts_on_the_way(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "softmax_converts_on_the_way.py", NAME)


@pytest.mark.long
def test_streams_graphs_and_errors(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "streams_graphs_and_errors.py", NAME)


@pytest.mark.slow
def test_storages(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "storages.py", NAME)


@pytest.mark.slow
def test_as_cuda_comes_before_torch(run_python: PythonRunner) -> None:
    run_python(PROGRAMS / "as_cuda_comes_before_torch.py")
    done = run_python("import torch, torch_loom.as_cuda", check=False)
    assert "AlreadyInitializedError" in done.stderr
    assert "before `import torch`" in done.stderr


@pytest.mark.slow
def test_nothing_of_cuda_is_touched_without_the_name(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "nothing_of_cuda_is_touched_without_the_name.py")


LAUNCHES = [["{file}"], ["-m", "{module}"], ["--", sys.executable, "{file}"], ["-c", "import program"]]


@pytest.mark.slow
@pytest.mark.parametrize("launch", LAUNCHES)
def test_loom_run(tmp_path: Path, launch: list[str]) -> None:
    file = tmp_path / "program.py"
    shutil.copy(PROGRAMS / "arguments.py", file)
    command = [part.format(file=file, module="program") for part in launch]
    options = ["--chip", "atom", "--devices", "3", "--launch", "chaos"]
    done = subprocess.run(
        [sys.executable, "-m", "torch_loom.tools.cli", "run", *options, *command, "--chip", "theirs"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "cuda:0 3 atom ['--chip', 'theirs']" in done.stdout


@pytest.mark.long
def test_no_devices_is_said_in_torch_cudas_words(fork_python: PythonRunner) -> None:
    fork_python(
        PROGRAMS / "no_devices_is_said_in_torch_cudas_words.py",
        {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_DEVICES": "0"},
    )


def test_loom_run_refuses_bad_values(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch_loom.tools.cli", "run", "--devices", "many", "x.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode != 0
    assert "TORCH_LOOM_DEVICES='many'" in done.stderr


@pytest.mark.slow
def test_no_triton_and_no_variable_for_children(run_python: PythonRunner) -> None:
    # Interpreted kernels are none that a library should choose; compiled ones are.
    run_python(PROGRAMS / "no_triton_and_no_variable_for_children.py", {**NAME, "TRITON_INTERPRET": "1"})
