"""Tests that leave no device memory, though their fixtures give them tensors; and one that does."""

import pytest
import torch

kept = []


@pytest.fixture
def returned():
    return torch.ones(5000, device="cuda")


@pytest.fixture
def yielded():
    made = torch.ones(5000, device="cuda")
    yield made
    made.zero_()


@pytest.fixture(scope="module")
def shared():
    return torch.ones(5000, device="cuda")


def test_uses(returned, yielded, shared):
    assert returned.sum() == yielded.sum() == shared.sum()


def test_makes_a_cycle():
    cycle = [torch.ones(100, device="cuda")]
    cycle.append(cycle)


def test_keeps_what_a_fixture_made(returned):
    kept.append(returned)
