"""RBLN_DUMMY_DEVICE: devices that stand for NPUs, and execute nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.rbln.vendor import NAME

PROGRAMS = Path(__file__).parent / "programs" / "release_012"
DUMMY = {**NAME, "RBLN_DUMMY_DEVICE": "1"}


@pytest.mark.long
@pytest.mark.exercises("torch.rbln.is_dummy_device", "torch.rbln.physical_device_count")
def test_it_builds_and_does_not_execute(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "dummy_device.py", {**DUMMY, "RBLN_DEVICE_MAP": "[99],[3]", "RBLN_DEVICES": "0"})


@pytest.mark.long
@pytest.mark.parametrize("env", [DUMMY, NAME], ids=["dummy", "device"])
def test_compile_only_writes_a_program(
    fork_python: PythonRunner, tmp_path: Path, env: dict[str, str]
) -> None:
    first, second = (
        fork_python(PROGRAMS / "compile_only.py", env, given=str(tmp_path / "cache")).stdout for _ in range(2)
    )
    assert first == second  # the same graph is the same file


@pytest.mark.long
@pytest.mark.parametrize(
    ("value", "map_or_size", "devices"),
    [
        ("true", {}, 1),
        ("ON", {"RBLN_NPUS_PER_DEVICE": "4"}, 1),
        ("y", {"RBLN_DEVICE_MAP": "[0,1],[2,3],[4,5]"}, 3),
    ],
)
def test_how_many_there_are(
    fork_python: PythonRunner, value: str, map_or_size: dict[str, str], devices: int
) -> None:
    env = {**NAME, **map_or_size, "RBLN_DUMMY_DEVICE": value, "TORCH_LOOM_DEVICES": "9"}
    fork_python(PROGRAMS / "dummy_counts.py", env, given=devices)


@pytest.mark.long
def test_no_is_no(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "dummy_counts.py", {**NAME, "RBLN_DUMMY_DEVICE": "off"}, given=0)


def test_a_number_is_no_boolean(fork_python: PythonRunner) -> None:
    fork_python(
        PROGRAMS.parent / "under_the_name" / "settings_that_cannot_be.py",
        {**NAME, "RBLN_DUMMY_DEVICE": "4"},
        given=("not a boolean", "RBLN_DUMMY_DEVICE='4'"),
    )
