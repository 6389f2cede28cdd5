import torch

torch.manual_seed(3)
with torch.random.fork_rng(devices=[0]):
    within = torch.rand(4, device="cuda")
    torch.rand(100, device="cuda")
assert torch.equal(torch.rand(4, device="cuda"), within)
