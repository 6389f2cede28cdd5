"""The fit of what a host takes to issue an op, and the description into which it is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks import host_issue
from benchmarks.clock_error import DataError
from benchmarks.host_issue import Step
from torch_loom import chips


def step(wall_ms: float, *, kernel_ms: float = 1.0, is_fitted: bool = True) -> Step:
    return Step(f"step of {wall_ms} ms", is_fitted, 100, kernel_ms, wall_ms, wall_ms)


def test_only_steps_that_wait_for_their_host_tell_what_it_takes() -> None:
    busy = [step(90.0, kernel_ms=89.0), step(80.0, kernel_ms=79.0)]
    others = [step(700.0, is_fitted=False)]
    assert host_issue.fitted([*busy, *others, step(4.0), step(5.0), step(9.0)]) == 50_000.0
    with pytest.raises(DataError, match="waited for its host"):
        host_issue.fitted([*busy, *others])


def test_the_figure_is_written_into_one_description(tmp_path: Path) -> None:
    path = Path(shutil.copy(Path(chips.__file__).with_name("h200.toml"), tmp_path))
    host_issue.write(1234.0, "a source", path)
    assert chips.load(path).host_issue_ns == 1234.0
    assert chips.load(path).sources["host_issue_ns"] == "a source"
