"""Right programs are not reported: training on one stream and on several, loaders, reducers, threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from race_free import PATTERNS

from torch_loom.device import sanitizer

PROGRAMS = Path(__file__).parent / "programs" / "sanitizer_patterns"


@pytest.fixture(autouse=True)
def sanitized() -> Iterator[None]:
    sanitizer.enable()
    yield
    sanitizer.disable()


def _by_name(body: Callable[[], None]) -> str:
    return body.__name__


@pytest.mark.parametrize("body", PATTERNS, ids=_by_name)
def test_not_reported(body: Callable[[], None]) -> None:
    body()
    torch.loom.synchronize()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["blocking", "chaos"])
def test_launch_modes(mode: str, warm_python) -> None:
    warm_python(
        PROGRAMS / "launch_modes.py",
        {"TORCH_LOOM_LAUNCH": mode, "TORCH_LOOM_SANITIZER": "1", "TORCH_LOOM_DEVICES": "2"},
        given=str(Path(__file__).parent),
    )
