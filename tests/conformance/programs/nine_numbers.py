"""Nine tests as tt-buda's files have them, of which one fails."""

import pybuda  # the vendor's name
import pytest


@pytest.mark.parametrize("n", range(9))
def test_n(n: int) -> None:
    assert pybuda.__name__
    assert n != 6
