"""Collectives in stream order, in graphs and profiles, and beside the sanitizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs"
SETTINGS = {"TORCH_LOOM_DEVICES": "2", "TORCH_LOOM_MEMORY": "1GiB", "OMP_NUM_THREADS": "1"}


@pytest.mark.long
def test_streams_graphs_profiles_and_hooks(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "streams.py", SETTINGS)


@pytest.mark.long
def test_a_group_for_one_device(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "bound_device.py", SETTINGS)


def test_a_missing_wait_is_a_race(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "race.py", {**SETTINGS, "TORCH_LOOM_SANITIZER": "1"})


@pytest.mark.long
@pytest.mark.parametrize("seed", ["1", "2"])
def test_values_in_the_order_of_chaos(fork_loom: PythonRunner, seed: str) -> None:
    settings = {"TORCH_LOOM_LAUNCH": "chaos", "TORCH_LOOM_CHAOS_SEED": seed}
    fork_loom(PROGRAMS / "collectives.py", {**SETTINGS, **settings}, given=("loom", 2))


@pytest.mark.long
def test_a_collective_begins_when_the_latest_rank_is_ready(fork_loom: PythonRunner) -> None:
    modes = [{}, {"TORCH_LOOM_LAUNCH": "blocking"}]
    modes += [{"TORCH_LOOM_LAUNCH": "chaos", "TORCH_LOOM_CHAOS_SEED": seed} for seed in ("1", "2")]
    times = [fork_loom(PROGRAMS / "late_ranks.py", {**SETTINGS, **mode}).stdout for mode in modes]
    assert times[0]
    assert times == times[:1] * len(modes)
