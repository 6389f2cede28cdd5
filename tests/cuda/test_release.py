"""Versions that libraries ask for first: on an NVIDIA GPU those of the running release's default wheel."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "release"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}
# CUDA, cuDNN as its headers write it, cuDNN, NCCL. As the requirements of the default wheels on PyPI say.
WHEELS = {
    "2.13": ("13.0", 92000, (9, 20, 0), (2, 29, 7)),
    "2.14": ("13.0", 92400, (9, 24, 0), (2, 30, 7)),
    "2.15": ("13.2", 92600, (9, 26, 0), (2, 30, 7)),
}
CUDA, CUDNN, *NUMBERS = WHEELS[".".join(torch.__version__.split(".")[:2])]


@pytest.mark.long
def test_a_gpu_has_the_versions_of_the_default_wheel(fork_python: PythonRunner) -> None:
    program = PROGRAMS / "a_gpu_has_the_versions_of_the_default_wheel.py"
    fork_python(program, NAME, given=(CUDA, CUDNN, *NUMBERS))


@pytest.mark.long
def test_the_running_release_is_known(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "the_running_release_is_known.py", NAME)


@pytest.mark.long
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TORCH_LOOM_CUDA_VERSION": "12.8"}, ("12.8", True, CUDNN, 12080)),
        ({"TORCH_LOOM_CUDA_VERSION": "none"}, (None, False, None, 0)),
        ({"TORCH_LOOM_CHIP": "wormhole_b0"}, (None, False, None, 0)),
        ({"TORCH_LOOM_CHIP": "a100"}, (CUDA, True, CUDNN, 1000 * int(CUDA[:2]) + 10 * int(CUDA[3:]))),
        ({"TORCH_LOOM_CHIP": "loom1", "TORCH_LOOM_CUDA_VERSION": "12.6"}, ("12.6", True, CUDNN, 12060)),
    ],
)
def test_the_variable_and_the_chip_decide(
    fork_python: PythonRunner, variables: dict[str, str], expected: object
) -> None:
    fork_python(PROGRAMS / "the_variable_and_the_chip_decide.py", {**NAME, **variables}, given=expected)


@pytest.mark.long
def test_a_chip_that_is_configured_counts(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "a_chip_that_is_configured_counts.py", NAME, given=CUDA)


def test_a_bad_version_is_an_error(fork_python: PythonRunner) -> None:
    done = fork_python(
        "import torch, torch_loom; torch.loom.init()",
        {**NAME, "TORCH_LOOM_CUDA_VERSION": "thirteen"},
        check=False,
    )
    assert (
        "TORCH_LOOM_CUDA_VERSION='thirteen': not a version. Allowed: major.minor (12.8); none." in done.stderr
    )


@pytest.mark.slow
def test_compiled_code_asks(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "compiled_code_asks.py", NAME)


@pytest.mark.slow
def test_gradients_are_exchanged_in_bfloat16(warm_python: PythonRunner, tmp_path: Path) -> None:
    """DistributedDataParallel asks for the versions of CUDA and NCCL before it takes such a hook."""
    warm_python(PROGRAMS / "gradients_are_exchanged_in_bfloat16.py", NAME, given=str(tmp_path))


@pytest.mark.long
def test_one_device_unless_more_are_asked_for(fork_python: PythonRunner) -> None:
    devices = PROGRAMS / "number_of_devices.py"
    fork_python(devices, NAME, given=1)
    fork_python(devices, {**NAME, "LOCAL_WORLD_SIZE": "4"}, given=4)
    fork_python(devices, {**NAME, "LOCAL_WORLD_SIZE": "4", "TORCH_LOOM_DEVICES": "3"}, given=3)
    fork_python(devices, {**NAME, "TORCH_LOOM_CHIP": "h200,a100"}, given=2)
    fork_python(devices, {**NAME, "LOCAL_WORLD_SIZE": "all"}, given=1)
    # The name loom keeps its two, whoever starts the process.
    fork_python("import torch, torch_loom; assert torch.loom.device_count() == 2", {"LOCAL_WORLD_SIZE": "4"})
