"""``torch.cuda.cudart()``: the functions of the CUDA runtime library that PyTorch binds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "runtime_library"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}


@pytest.mark.long
def test_errors_have_cudas_numbers_and_texts(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "errors_have_cudas_numbers_and_texts.py", NAME)


@pytest.mark.long
def test_profiles_are_started_and_stopped(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "profiles_are_started_and_stopped.py", NAME)


@pytest.mark.long
def test_streams_by_handle(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "streams_by_handle.py", NAME)


@pytest.mark.long
def test_memory_of_the_host_is_registered(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "memory_of_the_host_is_registered.py", NAME)


def test_memory_of_each_device(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "memory_of_each_device.py", NAME)


@pytest.mark.long
def test_the_cache_of_transforms_plans(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "the_cache_of_transforms_plans.py", NAME)
