"""Linear algebra under the name cuda: errors at the call, and what CUDA's libraries compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "linalg_answers"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}


@pytest.mark.parametrize("stream", ["default", "side"])
def test_errors_are_raised_at_the_call(fork_python: PythonRunner, stream: str) -> None:
    """The host looks at what a solver says of its values, on every stream."""
    fork_python(PROGRAMS / "errors_are_raised_at_the_call.py", NAME, given=stream == "side")


@pytest.mark.long
def test_what_cuda_computes(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "what_cuda_computes.py", NAME)
