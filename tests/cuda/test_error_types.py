"""Errors are of the types that a GPU raises: programs print the name, and PyTorch puts it into messages."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "error_types"

TWO = {"TORCH_LOOM_DEVICES": "2"}


def test_devices_and_streams(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "devices_and_streams.py")


def test_generators_and_raw_memory(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "generators_and_raw_memory.py")


def test_calls_before_the_first_use(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "calls_before_the_first_use.py")


def test_allocators_and_communication(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "allocators_and_communication.py", TWO)


def test_immediate_asserts_are_of_both_types(fork_cuda: PythonRunner) -> None:
    """Of the CPU's, for tests that expect them, and of a GPU's; what shapes cause is what it is there."""
    fork_cuda(PROGRAMS / "immediate_asserts_are_of_both_types.py", {"TORCH_LOOM_ASSERTS": "immediate"})


def test_dtypes_that_differ(fork_cuda: PythonRunner) -> None:
    """In the words of CUDA's kernels, on every stream."""
    fork_cuda(PROGRAMS / "dtypes_that_differ.py")


def test_kernels_have_cudas_names(fork_cuda: PythonRunner) -> None:
    """The host's kernels compute, and no error shows that: names of kernels and of tensors' types."""
    fork_cuda(PROGRAMS / "kernels_have_cudas_names.py")


def test_devices_that_are_and_are_not_there(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "devices_that_are_and_are_not_there.py")
