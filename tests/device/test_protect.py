"""All tests of ops and devices with device memory that faults when host code touches it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite import run_suite


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_tests_of_ops_and_devices(tmp_path: Path) -> None:
    protected = {"TORCH_LOOM_PROTECT": "1"}
    # Not understood yet: they pass in a process of their own, and fail behind the tests of ops.
    unexplained = (
        "tests/device/test_gpu_trace.py::test_several_callbacks_and_their_errors",
        "tests/device/test_memory.py::test_emptying_means_all_devices",
        "tests/device/test_memory_history.py",
    )
    left_out = [f"--deselect={name}" for name in unexplained]
    assert (
        run_suite(
            tmp_path, protected, "tests/torch", "tests/device", "--ignore-glob=*/test_lazy*.py", *left_out
        )
        == set()
    )
