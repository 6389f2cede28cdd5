"""The name cuda on a build of PyTorch for CUDA, whose own backend gives way.

On a build for the CPU the same holds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from torch_loom import _C
from torch_loom.tools import launch

PROGRAMS = Path(__file__).parent / "programs" / "build_for_cuda"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}


@pytest.mark.long
def test_no_kernel_is_pytorchs(warm_python: PythonRunner) -> None:
    done = warm_python(PROGRAMS / "no_kernel_is_pytorchs.py", NAME)
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.slow
def test_no_kernel_is_pytorchs_from_the_start(run_python: PythonRunner) -> None:
    """Where PyTorch registers kernels in Python after the device, not before it."""
    done = run_python(PROGRAMS / "no_kernel_is_pytorchs.py", NAME)
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.parametrize("runner", ["warm_python", pytest.param("run_python", marks=pytest.mark.slow)])
@pytest.mark.long
def test_programs_end_clean(request: pytest.FixtureRequest, runner: str) -> None:
    run: PythonRunner = request.getfixturevalue(runner)
    done = run(PROGRAMS / "programs_end_clean.py", NAME)
    # Kineto prints these for any profile, but errors for one of CUDA.
    said = [line for line in done.stderr.splitlines() if not line.startswith("USDT:")]
    assert (done.stdout, said) == ("", [])


@pytest.mark.parametrize("runner", ["warm_python", pytest.param("run_python", marks=pytest.mark.slow)])
@pytest.mark.long
def test_native_kernels_are_the_devices(request: pytest.FixtureRequest, runner: str) -> None:
    run: PythonRunner = request.getfixturevalue(runner)
    run(PROGRAMS / "native_kernels_are_the_devices.py", NAME)


@pytest.mark.parametrize("stops_after", [0, 1, 5, _C.num_registrations() - 1])
def test_a_registration_that_fails_is_undone(fork_python: PythonRunner, stops_after: int) -> None:
    fork_python(PROGRAMS / "a_registration_that_fails_is_undone.py", given=stops_after)


def test_used_gpus_are_not_replaced(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "used_gpus_are_not_replaced.py", NAME)


def test_a_gpu_that_is_not_used_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(launch.os, "execvp", lambda file, line: commands.append(line))
    monkeypatch.setattr(launch.config, "export", lambda values: None)
    monkeypatch.setattr(launch.description, "export", lambda settings: None)
    monkeypatch.setattr(launch.description, "offer", lambda: None)
    for driver, count in ((tmp_path / "none", 0), (tmp_path, 1)):
        monkeypatch.setattr(launch, "_DRIVER", driver)
        launch.run(["train.py"], {})
        assert capsys.readouterr().err.count("the GPU of this machine is not used") == count
    assert len(commands) == 2
