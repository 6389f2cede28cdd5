"""Running an op with a seed of our choice, also when the database fixes one."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from .cases import SEED, seed_host

SALTS = (0, 1, 2, 3, 4, 5, 6, 7)
"""The seeds tried to find out whether an op is random."""

_manual_seed = torch.manual_seed


@functools.cache
def _device_module() -> Any:
    return torch.get_device_module(torch.accelerator.current_accelerator())


@contextmanager
def salted(salt: int) -> Iterator[None]:
    """Seeds every generator, and makes the database's own `torch.manual_seed(42)` depend on `salt` too."""

    def reseed(seed: Any) -> torch.Generator:
        return _manual_seed(int(seed) + 1000 * salt)

    seed_host(SEED + salt)
    if torch.accelerator.is_available():
        _device_module().manual_seed_all(SEED + salt)
    if salt == 0:
        yield
        return
    with mock.patch.object(torch, "manual_seed", reseed):
        yield
