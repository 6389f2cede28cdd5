"""Processes: what a forked child may use, what passes between processes, checkpoints of other devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.forking import environment

PROGRAMS = Path(__file__).parent / "programs" / "processes"


@pytest.mark.long
@pytest.mark.report(
    "pytorch/pytorch#83973", "a child forked after `device_count` may use CUDA, after a tensor it may not"
)
def test_fork_after_device_count(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "fork_after_device_count.py")


@pytest.mark.report("pytorch/pytorch#68861", "a child forked after `is_available` may not use CUDA")
def test_fork_after_is_available(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "fork_after_is_available.py")


@pytest.mark.report("pytorch/pytorch#68861", "with `PYTORCH_NVML_BASED_CUDA_CHECK=1` that child may")
def test_fork_after_the_check_of_nvml(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "fork_after_the_check_of_nvml.py", {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"})


@pytest.mark.report("IDEA-Research/GroundingDINO#276", "a forked worker of a `DataLoader` makes CUDA tensors")
@pytest.mark.report(
    "bentrevett/pytorch-sentiment-analysis#47", "a `DataLoader` names the error of its worker"
)
def test_a_worker_that_was_forked(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "a_worker_that_was_forked.py")


@pytest.mark.report(
    "pytorch/pytorch:torch/utils/data/_utils/pin_memory.py", "a `DataLoader` pins tensors of the host alone"
)
def test_device_tensors_are_not_pinned(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "device_tensors_are_not_pinned.py")


def run_file(tmp_path: Path, file: Path) -> None:
    """Run a program that child processes can import."""
    done = subprocess.run(
        [sys.executable, str(file)],
        env=environment({"TORCH_LOOM_DEVICE_NAME": "cuda", "PYTHONPATH": os.pathsep.join(sys.path)}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.report("IDEA-Research/GroundingDINO#276", "a spawned worker may: the advice of the thread")
def test_a_worker_that_was_spawned(tmp_path: Path) -> None:
    run_file(tmp_path, PROGRAMS / "a_worker_that_was_spawned.py")


@pytest.mark.slow
@pytest.mark.report("pytorch/pytorch#156618", "a tensor of a producer that waits arrives with its contents")
def test_a_producer_that_stays(tmp_path: Path) -> None:
    run_file(tmp_path, PROGRAMS / "a_producer_that_stays.py")


@pytest.mark.slow
@pytest.mark.report("pytorch/pytorch#10375", "a producer has ended before its tensor is received")
@pytest.mark.report("muskie82/MonoGS#127", "what CUDA says of it: the producer's context is gone")
def test_a_producer_that_has_ended(tmp_path: Path) -> None:
    run_file(tmp_path, PROGRAMS / "a_producer_that_has_ended.py")


@pytest.mark.long
@pytest.mark.report(
    "computationalmedia/semstyle#3", "a checkpoint of `cuda:1` is loaded where one device is visible"
)
@pytest.mark.report("pytorch/pytorch#17364", "`map_location` leaves nothing on the device that was saved")
def test_checkpoints_of_another_device(fork_cuda: PythonRunner, tmp_path: Path) -> None:
    file = str(tmp_path / "checkpoint.pt")
    two = {"TORCH_LOOM_DEVICES": "2"}
    fork_cuda(PROGRAMS / "checkpoints_of_another_device.py", two, given=file)
    fork_cuda(
        PROGRAMS / "checkpoints_of_another_device_2.py", {**two, "CUDA_VISIBLE_DEVICES": "0"}, given=file
    )
