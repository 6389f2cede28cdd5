"""Clusters on one machine, and plans beside real groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.long
def test_ranks_of_a_cluster(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "simulated_cluster.py")


@pytest.mark.long
def test_ranks_are_new_processes_where_devices_were_used(run_python: PythonRunner) -> None:
    run_python(PROGRAMS / "simulated_after_use.py")


@pytest.mark.long
def test_stages_of_a_pipeline(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "simulated_pipeline.py")


@pytest.mark.long
def test_plans_count_what_real_ranks_issue(fork_loom: PythonRunner) -> None:
    settings = {"TORCH_LOOM_DEVICES": "4", "TORCH_LOOM_MEMORY": "1GiB", "OMP_NUM_THREADS": "1"}
    fork_loom(PROGRAMS / "traffic.py", settings)
