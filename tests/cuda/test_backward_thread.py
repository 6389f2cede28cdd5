"""Backward passes in CUDA's name: each device has its thread, as on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "backward_thread"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}


@pytest.mark.slow
def test_hooks_see_nothing_that_is_local_to_the_callers_thread(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "hooks_see_nothing_that_is_local_to_the_callers_thread.py", NAME)


@pytest.mark.slow
def test_devices_streams_errors_and_reentrant_passes(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "devices_streams_errors_and_reentrant_passes.py", NAME)


@pytest.mark.slow
def test_a_forked_child_has_no_threads_for_it(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "a_forked_child_has_no_threads_for_it.py", NAME)


@pytest.mark.slow
def test_data_parallel(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "data_parallel.py", NAME)
