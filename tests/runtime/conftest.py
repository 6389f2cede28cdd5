from __future__ import annotations

import pytest
from torch_loom._C_testing import allocator

from tests.runtime.allocator_figures import MIB


@pytest.fixture
def fresh() -> allocator.Allocator:
    return allocator.Allocator("null", 256 * MIB, 3)
