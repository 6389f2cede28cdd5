"""Random programs over allocator, streams, events and graphs, in every launch mode; see `programs`."""

from __future__ import annotations

import pytest

from .programs import run_for

DEFAULT_SECONDS = 5.0
DEFAULT_SEED = 0


@pytest.mark.timeout(0)
def test_programs(request: pytest.FixtureRequest) -> None:
    seconds = request.config.getoption("--stateful-seconds")
    seed = request.config.getoption("--stateful-seed")
    if seed is not None:
        run_for(0.0 if seconds is None else seconds, seed)
    else:
        run_for(DEFAULT_SECONDS if seconds is None else seconds, DEFAULT_SEED)
