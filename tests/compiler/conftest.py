"""What tests of the compiler share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from torch_loom import compiler

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def plain_configuration(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Options at their defaults before and after; nothing is taken from a cache."""
    monkeypatch.setenv("TORCH_LOOM_COMPILE_CACHE", "off")
    compiler.reset_configuration()
    yield
    compiler.reset_configuration()
