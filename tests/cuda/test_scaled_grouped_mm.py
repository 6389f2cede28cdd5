"""Products of groups of float8 matrices: results of each layout, and what CUDA refuses in its words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "scaled_grouped_mm"


@pytest.mark.long
def test_products_of_each_layout(fork_python: PythonRunner) -> None:
    fork_python(
        PROGRAMS / "products_of_each_layout.py", {"TORCH_LOOM_DEVICE_NAME": "cuda"}, is_autoloading=True
    )


def test_what_cuda_refuses(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "what_cuda_refuses.py", {"TORCH_LOOM_DEVICE_NAME": "cuda"}, is_autoloading=True)


@pytest.mark.long
def test_other_architectures_refuse_all(fork_python: PythonRunner) -> None:
    env = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_CHIP": "a100"}
    fork_python(PROGRAMS / "other_architectures_refuse_all.py", env, is_autoloading=True)


@pytest.mark.long
def test_offsets_that_are_asserted(fork_python: PythonRunner) -> None:
    env = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_ASSERTS": "immediate"}
    fork_python(PROGRAMS / "offsets_that_are_asserted.py", env, is_autoloading=True)
