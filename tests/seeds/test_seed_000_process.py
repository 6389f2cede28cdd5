"""Runs test_seed_000.py under the vendor's device name and on the vendor's chip."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.suite import run_suite

PROGRAMS = Path(__file__).parent / "programs" / "seed_000_process"

VENDOR = {"TORCH_LOOM_DEVICE_NAME": "rbln", "TORCH_LOOM_CHIP": "atom"}


@pytest.mark.slow
def test_under_the_vendors_name(tmp_path: Path) -> None:
    assert run_suite(tmp_path, VENDOR, "tests/seeds/test_seed_000.py") == set()


def test_without_devices_none_is_available(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "without_devices_none_is_available.py", {**VENDOR, "TORCH_LOOM_DEVICES": "0"})
