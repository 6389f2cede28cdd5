"""Plans of many ranks find the shardings of alike tensors at once."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import PythonRunner

PROGRAM = Path(__file__).parent / "programs" / "foreach_shardings.py"


def test_shardings_of_lists_are_those_of_pytorch(warm_python: PythonRunner) -> None:
    warm_python(PROGRAM, {})
