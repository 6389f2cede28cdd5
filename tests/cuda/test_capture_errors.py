"""Captures that fail, in CUDA's name: the words, types and order of CUDA's errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "capture_errors"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}


@pytest.mark.slow
def test_what_waits_for_the_device_makes_the_capture_fail(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "what_waits_for_the_device_makes_the_capture_fail.py", NAME)


@pytest.mark.slow
def test_errors_that_are_not_the_captures_leave_it(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "errors_that_are_not_the_captures_leave_it.py", NAME)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "elsewhere", "here"),
    [("global", True, True), ("thread_local", False, True), ("relaxed", False, False)],
)
def test_memory_that_no_capture_takes_for_itself(
    warm_python: PythonRunner, mode: str, elsewhere: bool, here: bool
) -> None:
    # As cudaMalloc: of another thread, and of another device of the same one.
    warm_python(PROGRAMS / "memory_that_no_capture_takes_for_itself.py", NAME, given=(mode, elsewhere, here))


@pytest.mark.slow
def test_graphed_callables(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "graphed_callables.py", NAME)
