"""A driver that is compiled against the installed headers, as a chip team would do it elsewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from contract import ROOT, Chip
from torch_loom._C_testing import clock, driver

import torch_loom

PROGRAMS = Path(__file__).parent / "programs" / "out_of_tree"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

SOURCE = ROOT / "tests/driver/tiny/tiny_driver.cpp"
CONTRACT = ("driver.h", "activity.h", "error.h")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library of the driver `tiny`: docs/drivers.md has the command."""
    target = tmp_path_factory.mktemp("tiny") / "libtiny.so"
    headers = f"-I{torch_loom.include_path()}"
    command = ["c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-z,defs", headers]
    subprocess.run([*command, str(SOURCE), "-o", str(target)], check=True)
    return str(target)


def test_the_headers_are_those_of_the_contract() -> None:
    for name in CONTRACT:
        installed = Path(torch_loom.include_path()) / "driver" / name
        assert installed.read_text(encoding="utf-8") == (ROOT / "csrc/driver" / name).read_text(
            encoding="utf-8"
        )


def test_it_includes_nothing_else_of_ours() -> None:
    text = SOURCE.read_text(encoding="utf-8")
    assert re.findall(r'#include "([^"]+)"', text) == ["driver/driver.h"]


@pytest.mark.slow
def test_a_program_runs_on_it(tiny: str, warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "a_program_runs_on_it.py", {"TORCH_LOOM_DRIVER": tiny})


@pytest.mark.long
def test_it_is_given_the_programs_clock(tiny: str) -> None:
    chip = Chip(tiny)
    start, end, stream = chip.driver.create_event(), chip.driver.create_event(), chip.driver.create_stream(0)
    try:
        for event, time_ns in ((start, 10), (end, 52)):
            clock.set_time(time_ns)
            chip.driver.record_event(event, stream)
    finally:
        clock.restore()
    assert chip.driver.elapsed_ns(start, end) == 42


def test_one_of_the_version_before_is_refused(tmp_path: Path) -> None:
    source, target = tmp_path / "old.cpp", tmp_path / "old.so"
    source.write_text('extern "C" struct { unsigned contract; void* create; } loom_driver{1, nullptr};')
    subprocess.run(["c++", "-shared", "-fPIC", str(source), "-o", str(target)], check=True)
    with pytest.raises(driver.InvalidArgument, match=r"version 1 of the contract, and this is version \d"):
        driver.create(str(target), 1, 1 << 30)
