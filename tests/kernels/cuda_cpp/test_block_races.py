"""Beyond a block: what `--sanitize` finds between blocks and launches, and kernels that do not end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs"
NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_ASSERTS": "immediate"}


@pytest.mark.slow
def test_races_and_unwritten_memory(warm_python: PythonRunner, cache: Path) -> None:
    settings = {**NAME, "TORCH_LOOM_SANITIZER": "1", "TORCH_LOOM_KERNEL_CACHE": str(cache)}
    shown = warm_python(PROGRAMS / "block_races.py", settings).stdout.splitlines()
    right, race, same, last, unwritten, *rest = shown
    assert right == "nothing 2016"
    assert "a race between blocks: block (1, 0, 0), thread (0, 0, 0) reads 4 bytes at code:" in race, race
    assert "of argument 2, which block (0, 0, 0) has written at code:" in race, race
    assert (same, last) == ("nothing", "nothing")
    assert "bytes at code:" in unwritten, unwritten
    assert "at byte 0 of argument 1, which nothing has written" in unwritten, unwritten
    assert rest == ["nothing nothing", "CUDASanitizerErrors"]


@pytest.mark.slow
@pytest.mark.parametrize("checks", ["0", "1"])
def test_kernels_that_do_not_end(warm_python: PythonRunner, cache: Path, checks: str) -> None:
    limit = {"TORCH_LOOM_KERNEL_TIMEOUT": "0.5", "TORCH_LOOM_CHECK_KERNELS": checks}
    settings = {**NAME, **limit, "TORCH_LOOM_KERNEL_CACHE": str(cache)}
    *shown, after = warm_python(PROGRAMS / "over_limit.py", settings).stdout.splitlines()
    for line, name in zip(shown, ("spin", "meets", "spin"), strict=True):
        assert line.startswith(f"702 CUDA error: the launch timed out and was terminated | {name}: "), line
        assert "has not ended within the limit for a launch (TORCH_LOOM_KERNEL_TIMEOUT)" in line, line
    assert "block (2, 0, 0)" in shown[0]
    assert after == "1"
