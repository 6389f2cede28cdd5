"""The launch modes: the same bits in each, races that chaos shows, processes that end with work pending."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "launch_modes"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


@pytest.fixture(scope="module")
def trained(fork_loom: PythonRunner) -> list[str]:
    """Return what training leads to in place, with one and two intra-op threads."""
    return fork_loom(PROGRAMS / "training.py", {"TORCH_LOOM_LAUNCH": "blocking"}).stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    ["auto", *(f"chaos {seed}" for seed in range(1, 5))],
)
def test_training_has_the_same_bits(fork_loom: PythonRunner, trained: list[str], mode: str) -> None:
    launch, _, seed = mode.partition(" ")
    env = {"TORCH_LOOM_LAUNCH": launch, **({"TORCH_LOOM_CHAOS_SEED": seed} if seed else {})}
    assert [len(line.split()) for line in trained] == [1, 1]
    assert fork_loom(PROGRAMS / "training.py", env).stdout.splitlines() == trained


def outcomes(fork_loom: PythonRunner, wait: str) -> list[str]:
    chaos = [{"TORCH_LOOM_LAUNCH": "chaos", "TORCH_LOOM_CHAOS_SEED": str(seed)} for seed in range(1, 21)]
    return [fork_loom(PROGRAMS / "race.py", env, given=wait).stdout.strip() for env in chaos]


@pytest.fixture(scope="module")
def unordered(fork_loom: PythonRunner) -> list[str]:
    """Return the outcomes of the program that does not wait."""
    return outcomes(fork_loom, "pass")


@pytest.mark.slow
def test_chaos_finds_a_missing_wait(unordered: list[str]) -> None:
    assert "False" in unordered


@pytest.mark.slow
def test_chaos_heeds_waits(fork_loom: PythonRunner) -> None:
    assert outcomes(fork_loom, "default.wait_stream(side)") == ["True"] * 20
    assert outcomes(fork_loom, "default.wait_event(side.record_event())") == ["True"] * 20


@pytest.mark.slow
def test_chaos_repeats_itself(fork_loom: PythonRunner, unordered: list[str]) -> None:
    assert outcomes(fork_loom, "pass") == unordered


def test_blocking_runs_everything_in_place(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "blocking_runs_everything_in_place.py", {"TORCH_LOOM_LAUNCH": "blocking"})


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 999], ids=["pending", "failed"])
@pytest.mark.parametrize("attempt", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, 10))])
def test_a_process_may_end_with_work_pending(
    run_python: PythonRunner, warm_python: PythonRunner, attempt: int, index: int
) -> None:
    run = warm_python if attempt else run_python
    done = run(PROGRAMS / "pending.py", given=index)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long
def test_a_fork_with_work_pending(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "a_fork_with_work_pending.py")
