"""The null driver: a program's shapes, memory and errors, without its arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "null_driver"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

NULL = {"TORCH_LOOM_DRIVER": "null", "TORCH_LOOM_MEMORY": "80GiB"}


@pytest.mark.long
def test_a_program_runs_to_its_end(warm_python: PythonRunner) -> None:
    done = warm_python(PROGRAMS / "a_program_runs_to_its_end.py", NULL)
    assert done.stderr == ""


@pytest.mark.slow
def test_shapes_views_and_memory_are_real(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "shapes_views_and_memory_are_real.py", NULL)


@pytest.mark.slow
def test_errors_are_real_and_values_are_constants(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "errors_are_real_and_values_are_constants.py", NULL)
