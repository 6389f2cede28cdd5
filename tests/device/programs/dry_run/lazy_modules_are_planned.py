"""Modules that learn the shapes of their parameters in their first call move to devices without them."""

import torch

with torch.loom.dry_run() as plan:
    model = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.LazyBatchNorm1d()).to("loom")
    assert model(torch.ones(3, 5, device="loom")).shape == (3, 4)
    assert model[0].weight.shape == (4, 5)
assert plan.peak_memory_bytes() > 0
