"""Kernels of these tests are compiled anew, into folders of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("kernels") / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_LOOM_KERNEL_CACHE", str(folder))
        yield folder
