"""Nested tensors where CUDA has kernels that the CPU lacks, and where Inductor lowers them for CUDA alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "nested_ops"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(3, 5, 1), (0, 4, 2), (0, 0)], ids=["full", "one empty", "all empty"])
def test_parts_with_rows_of_a_dense_tensor(warm_python: PythonRunner, lengths: tuple[int, ...]) -> None:
    warm_python(PROGRAMS / "parts_with_rows_of_a_dense_tensor.py", NAME, given=lengths)


@pytest.mark.slow
def test_compiled_padding_has_gradients(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "compiled_padding_has_gradients.py", NAME)
