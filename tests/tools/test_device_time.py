"""The fixture loom_time."""

from __future__ import annotations

import pytest
import torch

from torch_loom.tools.pytest_plugin import LoomTime, loom_time

__all__ = ["loom_time"]


def test_a_block_takes_the_same_each_time(loom_time: LoomTime) -> None:
    x = torch.ones(128, 128, device="loom")
    found = set()
    for _ in range(3):
        with loom_time(at_most=1.0, at_least=1e-9) as took:
            (x @ x).sum().item()
        assert 0 < took.host_seconds <= took.seconds
        found.add(round(took.seconds * 1e9))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("limit", "words"), [("at_most", "at most 0.001 us"), ("at_least", "at least 1000000.000 us")]
)
def test_a_limit_that_is_missed_fails_the_test(loom_time: LoomTime, limit: str, words: str) -> None:
    bound = {"at_most": 1e-9, "at_least": 1.0}[limit]
    with pytest.raises(pytest.fail.Exception, match=words), loom_time(**{limit: bound}):
        torch.ones(8, device="loom").add_(1)


def test_an_error_in_the_block_is_the_tests(loom_time: LoomTime) -> None:
    with pytest.raises(ZeroDivisionError), loom_time(at_most=0.0):
        raise ZeroDivisionError
