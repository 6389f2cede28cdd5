"""``mode="reduce-overhead"`` and ``backend="cudagraphs"`` in CUDA's name: PyTorch's own trees of graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "graph_trees"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}


@pytest.mark.slow
def test_reading_a_result_that_a_later_run_has_overwritten(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "reading_a_result_that_a_later_run_has_overwritten.py", NAME)


@pytest.mark.slow
def test_training(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "training.py", NAME)


@pytest.mark.slow
def test_sizes_mutation_devices_and_memory(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "sizes_mutation_devices_and_memory.py", NAME)
