"""Versions that libraries ask for first: on an NVIDIA GPU those of the running release's default wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "release"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_a_gpu_has_the_versions_of_the_default_wheel(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "a_gpu_has_the_versions_of_the_default_wheel.py", NAME)


def test_the_running_release_is_known(fork_python: PythonRunner) -> None:
    """The release that pyproject.toml asks for has an entry of its own."""
    fork_python(PROGRAMS / "the_running_release_is_known.py", NAME, given=str(PYPROJECT))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TORCH_LOOM_CUDA_VERSION": "12.8"}, ("12.8", True, 92000, 12080)),
        ({"TORCH_LOOM_CUDA_VERSION": "none"}, (None, False, None, 0)),
        ({"TORCH_LOOM_CHIP": "wormhole_b0"}, (None, False, None, 0)),
        ({"TORCH_LOOM_CHIP": "a100"}, ("13.0", True, 92000, 13000)),
        ({"TORCH_LOOM_CHIP": "loom1", "TORCH_LOOM_CUDA_VERSION": "12.6"}, ("12.6", True, 92000, 12060)),
    ],
)
def test_the_variable_and_the_chip_decide(
    fork_python: PythonRunner, variables: dict[str, str], expected: object
) -> None:
    fork_python(PROGRAMS / "the_variable_and_the_chip_decide.py", {**NAME, **variables}, given=expected)


def test_a_chip_that_is_configured_counts(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "a_chip_that_is_configured_counts.py", NAME)


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


def test_one_device_unless_more_are_asked_for(fork_python: PythonRunner) -> None:
    devices = PROGRAMS / "number_of_devices.py"
    fork_python(devices, NAME, given=1)
    fork_python(devices, {**NAME, "LOCAL_WORLD_SIZE": "4"}, given=4)
    fork_python(devices, {**NAME, "LOCAL_WORLD_SIZE": "4", "TORCH_LOOM_DEVICES": "3"}, given=3)
    fork_python(devices, {**NAME, "TORCH_LOOM_CHIP": "h200,a100"}, given=2)
    fork_python(devices, {**NAME, "LOCAL_WORLD_SIZE": "all"}, given=1)
    # The name loom keeps its two, whoever starts the process.
    fork_python("import torch, torch_loom; assert torch.loom.device_count() == 2", {"LOCAL_WORLD_SIZE": "4"})
