"""A host that runs short of memory: an error, before the operating system ends the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "host_memory"

# The interpreter with torch takes some 300 MiB of it.
ENV = {"TORCH_LOOM_MEMORY": "64GiB", "TORCH_LOOM_HOST_MEMORY": "900MiB"}


@pytest.mark.slow
def test_host_memory_runs_short(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "program.py", {**ENV, "TORCH_LOOM_DEVICE_NAME": "cuda"})


@pytest.mark.slow
def test_under_our_own_name_and_on_streams(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "program.py", {**ENV, "TORCH_LOOM_PROTECT": "1"})
    warm_python(PROGRAMS / "under_our_own_name_and_on_streams.py", ENV)


@pytest.mark.slow
def test_what_is_cached_makes_room(run_python: PythonRunner) -> None:
    run_python(PROGRAMS / "cached_blocks.py", {"TORCH_LOOM_HOST_MEMORY": "2000MiB"})


def test_a_context_takes_none(warm_python: PythonRunner) -> None:
    warm_python(
        PROGRAMS / "a_context_takes_none.py",
        {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_HOST_MEMORY": "500MiB"},
    )
