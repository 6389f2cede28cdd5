"""torch.rbln.offload: tensors that wait for the device in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.rbln.vendor import NAME

PROGRAMS = Path(__file__).parent / "programs" / "release_012"


@pytest.mark.long
@pytest.mark.exercises("torch.rbln.offload", "torch.rbln.release_offload_temp_storage")
def test_what_waits_is_in_files(warm_python: PythonRunner, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    warm_python(PROGRAMS / "offload.py", {**NAME, "RBLN_OFFLOAD_DIR": str(folder)}, given=str(folder))
    assert list(folder.iterdir()) == []  # the interpreter has removed the rest


def test_a_folder_that_cannot_be(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "offload_cannot.py", {**NAME, "RBLN_OFFLOAD_DIR": "/proc/nothing"})


@pytest.mark.long
def test_what_a_killed_process_left_is_removed(fork_python: PythonRunner, tmp_path: Path) -> None:
    """By the next process that offloads; what a living one has, and what others have there, stays."""
    given = str(tmp_path), str(PROGRAMS / "offload_kept.py")
    fork_python(PROGRAMS / "offload_killed.py", {**NAME, "RBLN_OFFLOAD_DIR": str(tmp_path)}, given=given)
