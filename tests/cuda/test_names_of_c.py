"""Every name of CUDA's in ``torch._C``, as PyTorch's stubs and own Python list them, is there and answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "names_of_c"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}

# Why a name is not here.
LEFT_OUT = {
    "_cuda_tunableop_get_rotation_buffer_size": "misspelt in the stubs: get_rotating_buffer_size",
    "_FastCudaLauncher": "Inductor launches Triton's kernels without it where it is not there",
}
# What ends or changes more than its answer.
NOT_CALLED = {
    "_cuda_init": "a first use",
    "_cuda_changeCurrentAllocator": "comes before the first allocation",
}


@pytest.mark.long
def test_every_name_is_there(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "every_name_is_there.py", NAME, given=set(LEFT_OUT))


def test_questions_without_arguments_are_answered(fork_python: PythonRunner) -> None:
    """By what the stubs say that they return, or by one sentence that says what the name stands for."""
    fork_python(
        PROGRAMS / "questions_without_arguments_are_answered.py", NAME, given=set(LEFT_OUT) | set(NOT_CALLED)
    )


@pytest.mark.long
def test_functions_that_have_a_counterpart_are_that(fork_python: PythonRunner) -> None:
    fork_python(
        PROGRAMS / "functions_that_have_a_counterpart_are_that.py", {**NAME, "TORCH_LOOM_DEVICES": "2"}
    )


@pytest.mark.slow
def test_collect_env_says_what_there_is(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "collect_env_says_what_there_is.py", NAME)
