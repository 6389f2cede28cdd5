"""Attention of nested tensors under CUDA's name: the fused kernels take them, packed, as one command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "nested_attention"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB"}


@pytest.mark.slow
def test_output_and_gradients(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "output_and_gradients.py", env=NAME)


@pytest.mark.long
def test_a_part_of_a_nested_tensor(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "a_part_of_a_nested_tensor.py", env=NAME)


@pytest.mark.slow
def test_a_batch_of_one_and_one_head_stand_for_all(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "a_batch_of_one_and_one_head_stand_for_all.py", env=NAME)


def test_the_choice_is_cudas(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "the_choice_is_cudas.py", env=NAME)


@pytest.mark.long
def test_one_command(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "one_command.py", env=NAME)


@pytest.mark.long
def test_the_mask_of_dropout(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "the_mask_of_dropout.py", env=NAME)


@pytest.mark.slow
def test_what_does_not_fit_is_refused(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "what_does_not_fit_is_refused.py", env=NAME)


@pytest.mark.slow
def test_the_efficient_kernel_by_name(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "the_efficient_kernel_by_name.py", env=NAME)
