"""A process that used a device ends quietly."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "exit"


@pytest.mark.parametrize("attempt", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2))])
@pytest.mark.long
def test_a_script_may_end_right_after_backward(run_python, warm_python, attempt):
    """The engine's device thread still frees its task then; asking for the GIL too late would abort."""
    run = warm_python if attempt else run_python
    done = run(PROGRAMS / "right_after_backward.py")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_pool_may_outlive_the_modules(run_python):
    """What `builtins` holds is freed when the interpreter has let go of everything else."""
    done = run_python(PROGRAMS / "a_pool_may_outlive_the_modules.py")
    assert (done.returncode, done.stderr) == (0, "")
