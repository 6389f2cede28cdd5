"""Values that a kernel cannot take: device-side asserts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "asserts"


@pytest.mark.long
@pytest.mark.report(
    "pytorch/pytorch#29966", "an index out of range: the error is raised later, by whatever waits"
)
@pytest.mark.report(
    "pytorch/pytorch#25537", "after a device-side assert every call fails until the process ends"
)
def test_an_index_out_of_range(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "an_index_out_of_range.py")


@pytest.mark.long
@pytest.mark.report(
    "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html",
    "after an assert every call of the runtime returns its error, also those that start no work",
)
def test_calls_without_work_fail_too(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "calls_without_work_fail_too.py")


@pytest.mark.report(
    "pytorch/pytorch#18014", "labels out of range: an assert of the loss; `ignore_index` is none"
)
def test_labels_out_of_range(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "labels_out_of_range.py")
