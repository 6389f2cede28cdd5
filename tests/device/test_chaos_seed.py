"""A program that fails in the launch mode chaos says how to have it fail again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "chaos_seed"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["raise ValueError('lost')", "pass"])
@pytest.mark.parametrize("launch", ["chaos", pytest.param("auto", marks=pytest.mark.slow)])
def test_the_seed_of_chaos_is_told_when_a_program_fails(
    warm_python: PythonRunner, launch: str, end: str
) -> None:
    env = {"TORCH_LOOM_LAUNCH": launch, "TORCH_LOOM_CHAOS_SEED": "42"}
    done = warm_python(
        PROGRAMS / "the_seed_of_chaos_is_told_when_a_program_fails.py", env, check=False, given=end
    )
    line = "torch-loom: launch mode chaos, seed 42; TORCH_LOOM_CHAOS_SEED=42 repeats this order\n"
    assert done.stderr.endswith(line) == (launch == "chaos" and end != "pass")
    assert (done.returncode == 0) == (end == "pass")
