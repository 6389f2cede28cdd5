"""What tests of images share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def without_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is taken from a cache of compiled models."""
    monkeypatch.setenv("TORCH_LOOM_COMPILE_CACHE", "off")
