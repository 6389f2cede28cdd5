"""The benchmark of other projects' test suites, on a suite of two tests."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import suites

TESTS = """
import os, torch

def test_device():
    assert torch.ones(2, device=os.environ["SUITE_DEVICE"]).sum() == 2

def test_cpu():
    assert os.environ["SUITE_DEVICE"] in ("cpu:0", "cuda")

def test_name():
    assert ("TORCH_LOOM_DEVICE_NAME" in os.environ) == (os.environ["SUITE_DEVICE"] == "cuda")

def test_accelerator():
    assert torch.accelerator.is_available()
"""


@pytest.mark.slow
def test_a_suite_runs_on_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_small.py").write_text(TESTS)
    arguments = [str(tmp_path), "test_small.py", "--device-variable", "SUITE_DEVICE", "--cpu", "cpu:0"]
    arguments += ["--quick", "--once"]
    assert suites.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "`test_small.py`: 3 pass on cpu, 4 pass on cuda. Seconds of user time for the 3 that" in printed
    assert "3 passed" in printed
    assert "4 passed" not in printed


@pytest.mark.slow
def test_a_suite_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(suites.SuiteError, match="nothing_of_this_name"):
        suites.main([str(tmp_path), "test_broken.py", "--quick", "--once"])


def test_parts_of_the_time() -> None:
    found = suites.parts({suites.COLLECT: 2.0, suites.ONCE: 10.0, suites.TWICE: 13.0})
    assert found == suites.Parts(imports=2, first=5, again=3)
    options = argparse.Namespace(once=False, files=["test_x.py"], keyword="a or b")
    seconds = {"cpu": (2, 5, 7, 0), "cuda": (2, 10, 13, 9)}
    runs = {
        (device, kind): [suites.Run(float(taken), 4)]
        for device, all_taken in seconds.items()
        for kind, taken in zip(suites.KINDS, all_taken, strict=True)
    }
    body = suites.docs_body(options, {"cpu": set("abcd"), "cuda": set("abcde")}, runs, 1)
    assert (
        '`test_x.py -k "a or b"`: 4 pass on cpu, 5 pass on cuda. Seconds of user time for the 4 that' in body
    )
    assert "Estimates of the chip's times are 1.0 s of it." in body
    assert "| what first calls take more | 1.0 | 5.0 | +4.0 | 5.00 |" in body
    assert "| **all** | 5.0 | 10.0 | +5.0 | 2.00 |" in body
