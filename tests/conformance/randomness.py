"""Running an op with a seed of our choice, also when the database fixes one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from .cases import SEED, seed_everything

SALTS = (0, 1, 2, 3, 4, 5, 6, 7)
"""The seeds tried to find out whether an op is random."""

_manual_seed = torch.manual_seed


@contextmanager
def salted(salt: int) -> Iterator[None]:
    """Seeds every generator, and makes the database's own `torch.manual_seed(42)` depend on `salt` too."""

    def reseed(seed: Any) -> torch.Generator:
        return _manual_seed(int(seed) + 1000 * salt)

    seed_everything(SEED + salt)
    if salt == 0:
        yield
        return
    with mock.patch.object(torch, "manual_seed", reseed):
        yield
