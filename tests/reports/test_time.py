"""Time: events between kernels, and profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "time"


@pytest.mark.report("pytorch/pytorch#85796", "`elapsed_time` of an event that is not complete")
@pytest.mark.report("pytorch/tutorials#3165", "events are waited for before their time is read")
def test_events_that_are_not_complete(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "events_that_are_not_complete.py")


@pytest.mark.report(
    "https://docs.pytorch.org/tutorials/recipes/recipes/profiler_recipe.html",
    "the tables and traces of a profile that tutorials print",
)
def test_profiles(fork_cuda: PythonRunner, tmp_path: Path) -> None:
    fork_cuda(PROGRAMS / "profiles.py", given=str(tmp_path / "trace.json"))
