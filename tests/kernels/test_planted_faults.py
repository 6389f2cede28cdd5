"""Faults planted in kernels are reported with their line; the same kernels without them are silent."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "planted"
DEFAULT = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_ASSERTS": "immediate"}
SANITIZED = {**DEFAULT, "TORCH_LOOM_SANITIZER": "1"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed"),
]


def reports(warm_python: PythonRunner, name: str, environment: dict[str, str]) -> dict[str, str]:
    """Run the cases of a file; return what each reports. Each report has the line that is marked."""
    shown = warm_python(PROGRAMS / "run.py", environment, given=(name, [])).stdout
    found = {}
    for line in shown.splitlines():
        case, marked, report = line.split("\t")
        assert marked.strip("[]"), case
        assert f"{name}.py:{marked.strip('[]')}" in report, line
        found[case] = report
    return found


@pytest.mark.parametrize("environment", [DEFAULT, SANITIZED], ids=["default", "sanitized"])
def test_accesses_outside_of_an_argument(warm_python: PythonRunner, environment: dict[str, str]) -> None:
    found = reports(warm_python, "bounds", environment)
    assert len(found) == 20
    assert "tl.gather is given the index 16" in found.pop("gathered_outside")
    assert all("an illegal memory access was encountered" in report for report in found.values())
    assert "0 bytes after the end of argument table, a tensor of Float [10, 16]" in found["row_of_no_table"]
    assert "memory that is no tensor's" in found["freed_tensor"]


def test_races(warm_python: PythonRunner) -> None:
    found = reports(warm_python, "races", SANITIZED)
    assert len(found) == 14
    for case in ("on_two_streams", "halves_on_two_streams", "columns_on_two_streams"):
        assert found.pop(case).startswith("CUDASanitizerErrors: ")
    assert all("KernelCheckError" in report and "a race with program" in report for report in found.values())
    assert "program (1, 0, 0) of (4, 1, 1) writes 4 bytes at byte 768" in found["overlapping_tiles"]


def test_contents_and_offsets(warm_python: PythonRunner) -> None:
    found = reports(warm_python, "contents", SANITIZED)
    assert len(found) == 9
    words = {"KernelCheckError": 9, "which nothing has written": 5, "has wrapped around": 4}
    assert {text: sum(text in report for report in found.values()) for text in words} == words
