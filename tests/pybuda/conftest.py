"""Each test begins and ends without devices, modules and configuration of PyBuda's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from torch_loom import pybuda


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCH_LOOM_COMPILE_CACHE", "off")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    pybuda.pybuda_reset()
    yield
    pybuda.pybuda_reset()
    torch.set_num_threads(threads)
