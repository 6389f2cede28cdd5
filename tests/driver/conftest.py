"""The suite runs for every driver that there is."""

from __future__ import annotations

import pytest
from contract import Chip

from torch_loom._C import driver


@pytest.fixture(params=driver.names())
def chip(request: pytest.FixtureRequest) -> Chip:
    """Two devices of 64 MiB."""
    return Chip(request.param)
