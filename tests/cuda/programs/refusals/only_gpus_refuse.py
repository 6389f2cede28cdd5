import torch

x = torch.ones(2, 2, dtype=torch.long, device="cuda")
assert (x @ x).sum() == 8
assert torch.histogram(torch.ones(3, device="cuda"), 3).hist.sum() == 3
