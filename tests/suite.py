"""Running a part of the test suite in a process of its own, under other settings."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_suite(folder: Path, env: Mapping[str, str], *arguments: str) -> set[str]:
    """Run pytest with these arguments; return the modules with tests that skipped.

    Slow tests are left out, and those of programs in processes of their own, which the settings do not reach.

    Args:
        folder: where the report is written.
        env: the settings, added to the environment.

    Raises:
        AssertionError: a test failed, or none ran.
    """
    report = folder / "report.xml"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
            *("-m", "not slow and not conformance", "--in-this-process", f"--junit-xml={report}", *arguments),
        ],
        env={**os.environ, **env},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
    cases = list(ElementTree.parse(report).iter("testcase"))
    skipped = {case.attrib["classname"] for case in cases if case.find("skipped") is not None}
    assert {case.attrib["classname"] for case in cases} > skipped
    return skipped
