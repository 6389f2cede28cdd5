"""Kernels of these tests are compiled anew, into a folder that all processes of the tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_LOOM_KERNEL_CACHE", str(folder))
        yield folder
