"""The commands that run the vendor's demos and PyBuda's own test files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance import buda
from tests.conformance.demos.__main__ import Result, reason_of, section

PROGRAMS = Path(__file__).parent / "programs" / "demos"
ROOT = Path(__file__).parents[2]


def test_demos_that_pass_differ_and_fail() -> None:
    env = {**os.environ, "TORCH_LOOM_CHIP": "wormhole_b0"}
    command = [sys.executable, "-m", "tests.conformance.demos", str(PROGRAMS)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert "agrees.py: passed" in done.stdout, done.stdout + done.stderr
    assert "differs.py: correlates by 0." in done.stdout
    assert "fails.py: its model is of a source that is not here" in done.stdout
    assert "1 of 3 passed" in done.stdout


def test_the_table_of_demos() -> None:
    passed = Result("cv/a.py", pcc=0.999)
    found = [passed, Result("b.py", error="ModuleNotFoundError: No module named 'cv9'", notes=["few layers"])]
    text = section(found)
    assert "Of 2 demos 1 pass" in text
    assert "| a.py | 0.99900 | passed |  |" in text
    assert "| b.py |  | needs the package cv9 | few layers |" in text
    assert reason_of(Result("c.py", pcc=0.5)) == "correlates by 0.5000"


REPORT = (
    '<testsuites><testsuite><testcase name="one"/>'
    '<testcase name="two"><failure message="[XPASS(strict)] bug">[XPASS(strict)] bug</failure></testcase>'
    '<testcase name="three"><failure message="KeyError: placer_solution">E</failure></testcase>'
    '<testcase name="four"><failure message="ValueError: small">E</failure></testcase>'
    '<testcase name="five"><skipped type="pytest.skip"/></testcase></testsuite></testsuites>'
)


def test_reports_of_test_files(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT, encoding="utf-8")
    result = buda.counted("a.py", report)
    assert (result.passed, result.private, result.skipped) == (2, 1, 1)
    assert result.failed == {"four": "ValueError: small"}
    assert "| **all: 66.6%** | 2 | 1 | 1 | 1 |" in buda.section([result])


def test_a_share_of_the_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "test"
    folder.mkdir()
    shutil.copy(PROGRAMS.parent / "nine_numbers.py", folder / "test_a.py")
    assert buda.main([str(tmp_path), "test_a.py", "--at-most", "3"]) == 0
    assert "passed=2, private=0, skipped=0, failed={'test_n[6]'" in capsys.readouterr().out
