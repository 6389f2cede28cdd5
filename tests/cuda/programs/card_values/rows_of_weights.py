"""Weights of several rows are added in the order of `cumsum`: each sample falls into that sum's bucket."""

import torch

ROWS, SAMPLES = 5, 128
# Their sum is exact in any order, and so are shares; sums of shares above three quarters are not.
WEIGHTS = torch.tensor([128.0] + [1.0] * 64 + [0.5] * 128, dtype=torch.bfloat16, device="cuda")

rows = WEIGHTS.repeat(ROWS, 1)
shares = rows / 256
torch.manual_seed(7)
numbers = torch.rand(ROWS, SAMPLES, device="cuda").bfloat16()  # a thread draws the same for a sample
torch.manual_seed(7)
drawn = torch.multinomial(rows, SAMPLES, replacement=True)


def buckets(sums: torch.Tensor) -> torch.Tensor:
    found = torch.searchsorted(sums.float().cpu(), numbers.float().cpu())
    return found.clamp(max=WEIGHTS.numel() - 1)


assert torch.equal(drawn.cpu(), buckets(shares.cumsum(1)))
assert not torch.equal(drawn.cpu(), buckets(shares.double().cumsum(1).bfloat16()))
