"""What counts as the first use of CUDA where a process is forked: what starts CUDA's driver on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "forked_children"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}
BY_NVML = {**NAME, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
SENTENCE = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
    "'spawn' start method"
)

# Each question is asked in a child of its own, which has not used the devices. Its child would use them.

START_NOTHING = {
    "torch.cuda.device_count()",
    "torch.accelerator.device_count()",
    "torch.accelerator.current_accelerator()",
    "torch.get_device_module().device_count()",
    "torch.cuda.is_initialized()",
    "torch.cuda.memory_allocated()",
    "torch.manual_seed(3)",
    "torch.version.cuda, torch.backends.cudnn.version(), torch.cuda.nccl.version()",
}
# What asks NVML instead, where the variable says so.
ASK_NVML = {
    "torch.cuda.is_available()",
    "torch.accelerator.is_available()",
    "torch.accelerator.current_accelerator(check_available=True)",
    "torch.get_device_module().is_available()",
}
START_THE_DRIVER = {
    "torch._C._cuda_getDeviceCount()",
    "torch.cuda.get_arch_list()",
    "torch.cuda.is_bf16_supported()",
    "torch.cuda.is_tf32_supported()",
    "torch.cuda.get_device_name()",
    "torch.cuda.init()",
    "torch.cuda.cudart()",
    "torch.ones(1, device='cuda')",
}


def ask(fork_python: PythonRunner, usable: set[str], env: dict[str, str]) -> None:
    """Ask all questions; the devices must be usable in children after these."""
    questions = sorted(START_NOTHING | ASK_NVML | START_THE_DRIVER)
    fork_python(PROGRAMS / "questions.py", env, given=(SENTENCE, questions, usable))


@pytest.mark.long
def test_what_starts_the_driver_is_a_first_use(fork_python: PythonRunner) -> None:
    ask(fork_python, START_NOTHING, NAME)


@pytest.mark.slow
def test_the_variable_asks_nvml_for_availability(fork_python: PythonRunner) -> None:
    ask(fork_python, START_NOTHING | ASK_NVML, BY_NVML)
    # As in PyTorch, only this text means it.
    other = {**NAME, "PYTORCH_NVML_BASED_CUDA_CHECK": "true"}
    ask(fork_python, START_NOTHING, other)


def test_another_name_of_the_device_asks_no_driver(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "another_name_of_the_device_asks_no_driver.py")


@pytest.mark.long
def test_loader_workers_use_the_devices_where_the_parent_has_not(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "loader_workers_use_the_devices_where_the_parent_has_not.py", BY_NVML)


@pytest.mark.long
def test_loader_workers_are_refused_after_a_question(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "loader_workers_are_refused_after_a_question.py", NAME, given=SENTENCE)


@pytest.mark.slow
def test_processes_of_multiprocessing(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "processes_of_multiprocessing.py", NAME, given=SENTENCE)
