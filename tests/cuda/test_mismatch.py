"""Operands on two devices, in CUDA's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "mismatch"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}


@pytest.mark.slow
def test_the_argument_is_named(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "the_argument_is_named.py", NAME)


@pytest.mark.slow
def test_a_number_of_the_host_may_be_an_operand(warm_python: PythonRunner) -> None:
    """TensorIterator's scalars of the CPU; ``logaddexp`` checks its operands before, as on a GPU."""
    warm_python(PROGRAMS / "a_number_of_the_host_may_be_an_operand.py", NAME)
