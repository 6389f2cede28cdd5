"""The suite runs for every driver that there is, and for its modes that keep the whole contract.

The driver `mirror` of this folder is one of a library of its own, as a chip team would write it.
"""

from __future__ import annotations

import pytest
from contract import MIRROR, Chip
from torch_loom._C_testing import driver

VARIANTS: dict[str, dict[str, object]] = {
    **{name: {"name": name} for name in driver.names()},
    "virtual-blocking": {"name": "virtual", "launch": driver.Launch.BLOCKING},
    "virtual-protected": {"name": "virtual", "protect": True},
    "mirror": {"name": MIRROR},
    "mirror-blocking": {"name": MIRROR, "launch": driver.Launch.BLOCKING},
}


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def chip(request: pytest.FixtureRequest) -> Chip:
    """Two devices of 64 MiB."""
    return Chip(**request.param)
