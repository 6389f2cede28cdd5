"""What a project might have: tests for a GPU, one of which keeps memory, and one of which does not wait."""

from __future__ import annotations

import unittest

import pytest
import torch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
kept: list[torch.Tensor] = []


@needs_gpu
def test_product() -> None:
    x = torch.ones(64, 64, device="cuda")
    assert (x @ x).sum().item() == 64**3


@needs_gpu
def test_keeps() -> None:
    kept.append(torch.ones(1 << 20, device="cuda"))


@needs_gpu
def test_does_not_wait() -> None:
    side, total = torch.cuda.Stream(), torch.zeros(1000, device="cuda")
    for batch in [torch.ones(1000) for _ in range(20)]:
        with torch.cuda.stream(side):
            on_device = batch.pin_memory().to("cuda", non_blocking=True) * 2
        total += on_device
    assert total.sum().item() == 40_000


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return torch.nn.Linear(64, 64).cuda()


@needs_gpu
def test_of_a_module(model: torch.nn.Module) -> None:
    assert model(torch.ones(4, 64, device="cuda")).shape == (4, 64)


@unittest.skipUnless(torch.cuda.is_available(), "CUDA not found")
class TestOfUnittest(unittest.TestCase):
    def test_is_there(self) -> None:
        assert torch.ones(1, device="cuda").is_cuda


@unittest.skipIf(torch.cuda.is_available(), "for machines without a GPU")
class TestWithout(unittest.TestCase):
    def test_is_not_there(self) -> None:
        self.fail("ran with a GPU")


def test_device() -> None:
    print(f"{torch.cuda.device_count()} x {torch.cuda.get_device_properties(0).total_memory}")
