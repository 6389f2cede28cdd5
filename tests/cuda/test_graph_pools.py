"""Graphs in CUDA's name: the state of their pools, and the memory that random numbers take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "graph_pools"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}


@pytest.mark.slow
def test_the_state_of_a_pool_is_put_back(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "the_state_of_a_pool_is_put_back.py", NAME)


@pytest.mark.slow
def test_pools_whose_state_is_lost(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "pools_whose_state_is_lost.py", NAME)


@pytest.mark.slow
def test_graphs_that_draw_take_two_blocks_for_each_generator(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "graphs_that_draw_take_two_blocks_for_each_generator.py", NAME)
