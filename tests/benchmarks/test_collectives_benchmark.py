"""The benchmark of collectives runs, and says what was missed; numbers of such short runs mean nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import collectives
from benchmarks._common import Row

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_each_case_is_timed_on_both_sides(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.collectives",
        "--quick",
        "--json",
        str(tmp_path / "out.json"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [row["name"] for row in rows] == [case.name for case in collectives.CASES]
    assert all(row["cpu_us"] > 0 and row["device_us"] > 0 for row in rows)


def test_a_case_is_missed_by_its_time_or_by_its_ratio() -> None:
    small, large = "all_reduce, 16 B", "all_reduce, 64 MiB"
    assert not collectives.is_missed(Row(small, 10e-6, 60e-6, 6.0))
    assert collectives.is_missed(Row(small, 100e-6, 61e-6, 0.6))
    assert not collectives.is_missed(Row(large, 1.0, 1.0, 1.0))
    assert collectives.is_missed(Row(large, 1.0, 1.1, 1.1))
    assert {case.name for case in collectives.CASES} == {*collectives.LIMITS_US, *collectives.TARGETS}
    body = collectives.docs_body([Row(small, 100e-6, 50e-6, 0.5), Row(large, 0.1, 0.05, 0.5)])
    assert f"| {small} | 100 | 50 | 0.50 | 60 us |" in body
    assert f"| {large} | 100000 | 50000 | 0.50 | 1.0 |" in body
