"""A program on a driver of a library of its own, whose memory only `locate` finds: tests/driver/mirror."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "mirror_driver"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

ROOT = Path(__file__).parents[2]
MIRROR = {"TORCH_LOOM_DRIVER": str(ROOT / "build/temp/libloom_mirror.so"), "TORCH_LOOM_MEMORY": "1GiB"}


@pytest.mark.long
def test_a_program_trains_as_on_the_cpu(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "a_program_trains_as_on_the_cpu.py", MIRROR)


@pytest.mark.slow
def test_memory_copies_and_views(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "memory_copies_and_views.py", MIRROR)


@pytest.mark.slow
def test_a_failure_is_sticky(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "a_failure_is_sticky.py", MIRROR)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("./none.so", "ValueError", "cannot load the driver of .*/none.so: "),
        ("none.so", "ConfigurationError", "Allowed: virtual, null, or the path of a library"),
    ],
)
def test_a_library_that_is_not_there(warm_python: PythonRunner, value: str, error: str, message: str) -> None:
    done = warm_python(
        "import torch; torch.ones(1, device='loom')", {"TORCH_LOOM_DRIVER": value}, check=False
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert error in last
    assert re.search(message, last)


@pytest.mark.slow
def test_modes_that_a_driver_has_not(warm_python: PythonRunner) -> None:
    done = warm_python(
        "import torch; torch.ones(1, device='loom')", MIRROR | {"TORCH_LOOM_LAUNCH": "chaos"}, check=False
    )
    assert "NotImplementedError: the driver mirror has no launch mode chaos" in done.stderr
