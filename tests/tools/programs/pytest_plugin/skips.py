"""Tests that are skipped without a GPU in the ways that projects have, and tests that are not."""

from __future__ import annotations

import sys
import unittest

import pytest
import torch

HAS_CUDA = torch.cuda.is_available()
ready = HAS_CUDA and sys.maxsize > 0


@pytest.fixture
def card() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device("cuda")


def skip_if_no_cuda() -> None:
    if not HAS_CUDA:
        raise unittest.SkipTest("no GPU")


def test_counted_by_its_body() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a card")


def test_counted_by_a_fixture(card: torch.device) -> None:
    assert card.type == "cuda"


def test_counted_by_a_helper() -> None:
    skip_if_no_cuda()


@pytest.mark.skipif(not ready, reason="not ready")
def test_counted_by_a_variable_of_the_condition() -> None:
    pass


@pytest.mark.skipif("not torch.cuda.is_available()", reason="text")
def test_counted_by_a_condition_of_text() -> None:
    pass


class TestSetUp(unittest.TestCase):
    def setUp(self) -> None:
        if torch.cuda.device_count() == 0:
            self.skipTest("none")

    def test_counted_by_set_up(self) -> None:
        pass

    @unittest.skipIf(sys.platform == "win32", "the GPU driver of Windows is slow")
    def test_counted_once(self) -> None:
        pass


@pytest.mark.skipif(False, reason="GPU driver on Windows is broken")
def test_with_a_constant() -> None:
    pass


@pytest.mark.skipif(
    sys.platform == "win32",
    reason="the device driver of Windows",
)
def test_of_another_system() -> None:
    pass


@unittest.skipIf(sys.version_info < (3, 10), "CUDA needs Python 3.10")
class TestOfAnotherPython(unittest.TestCase):
    def test_is_there(self) -> None:
        pass


def test_that_asks_for_nothing() -> None:
    if sys.platform == "win32":
        pytest.skip("no GPU there")
    assert torch.ones(1, device="cuda").is_cuda
