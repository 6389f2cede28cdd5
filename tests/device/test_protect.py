"""Tests of ops and devices with device memory that faults when host code touches it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite import run_suite


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_tests_of_ops_and_devices(tmp_path: Path) -> None:
    protected = {"TORCH_LOOM_PROTECT": "1"}
    # Plans compute nothing, and what the others look at, the tape and its counters, is no device memory.
    names = ("test_lazy", *(f"device/test_{name}" for name in ("plan", "sanitizer", "telemetry", "tape")))
    left_out = [f"--ignore-glob=*/{name}*.py" for name in names]
    skipped = run_suite(tmp_path, protected, "tests/torch", "tests/device", *left_out)
    assert skipped == set()
