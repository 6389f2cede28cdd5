"""Every planted race is found, and its repaired twin is not reported, in all launch modes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import planted_races
import pytest
import torch
from planted_races import RACES, Race

from torch_loom.device import _sanitizer, sanitizer

PROGRAMS = Path(__file__).parent / "programs" / "sanitizer_races"


@pytest.fixture(autouse=True)
def sanitized() -> Iterator[None]:
    gc.collect()  # tensors that the last error held are not to be freed in the middle of a program
    torch.loom.synchronize()
    torch.loom.synchronize(1)
    sanitizer.enable()
    yield
    sanitizer.disable()
    torch.loom.synchronize()
    torch.loom.synchronize(1)
    gc.collect()


def _by_name(race: Race) -> str:
    return race.name


@pytest.mark.sampled(4)
@pytest.mark.parametrize("race", RACES, ids=_by_name)
def test_found(race: Race, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(_sanitizer.CUDASanitizerErrors) as caught:
        race.body(False)
    error = caught.value.errors[0]
    assert type(error).__name__ == race.error
    assert error.current_access.stream != error.previous_access.stream
    assert _sanitizer.AccessType.WRITE in (error.current_access.type, error.previous_access.type)
    for access in (error.current_access, error.previous_access):
        assert race.name in [frame.name for frame in access.stack_trace]
        assert access.sizes
    assert str(error) in capsys.readouterr().err


@pytest.mark.sampled(4)
@pytest.mark.parametrize("race", RACES, ids=_by_name)
def test_repaired(race: Race) -> None:
    race.body(True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["blocking", pytest.param("chaos", marks=pytest.mark.slow)])
def test_launch_modes(mode: str, warm_python) -> None:
    warm_python(
        PROGRAMS / "launch_modes.py",
        {"TORCH_LOOM_LAUNCH": mode, "TORCH_LOOM_SANITIZER": "1", "TORCH_LOOM_DEVICES": "2"},
        given=str(Path(__file__).parent),
    )


def test_table_is_long_and_documented() -> None:
    assert len(RACES) >= 20
    text = planted_races.DOC.read_text(encoding="utf-8")
    assert text == planted_races.written(text), f"run {sys.executable} tests/device/planted_races.py"
