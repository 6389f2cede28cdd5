"""Skipped on a runner without a GPU; `pytest --loom` runs them there."""

from __future__ import annotations

import pytest
import torch
from training import masked, mean_losses, prefetched

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_prefetched() -> None:
    batches = [torch.full((1000,), 255.0) for _ in range(20)]
    total = torch.zeros(1000, device="cuda")
    for batch in prefetched(batches, "cuda"):
        total += batch
    assert total.sum().item() == 20_000


def test_mean_losses_of_many_batches() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 8192), torch.nn.ReLU(), torch.nn.Linear(8192, 1)).cuda()
    batches = (torch.ones(1024, 64, device="cuda") for _ in range(40))
    assert mean_losses(model, batches).isfinite()


def test_masked() -> None:
    scores = masked(torch.zeros(2, 4, device="cuda"), torch.tensor([1, 3], device="cuda"))
    assert scores.isinf().sum().item() == 4
