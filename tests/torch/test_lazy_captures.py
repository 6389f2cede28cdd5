"""Under the lazy policy a graph's tensors are made on the device, in the graph's own memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "lazy_captures"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


@pytest.mark.slow
def test_what_grows_in_a_capture_is_the_graphs(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "what_grows_in_a_capture_is_the_graphs.py", {"TORCH_LOOM_MEMORY_POLICY": "lazy"})


@pytest.mark.slow
def test_a_wrong_op_in_a_capture_says_what_is_wrong(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "a_wrong_op_in_a_capture_says_what_is_wrong.py", {})
