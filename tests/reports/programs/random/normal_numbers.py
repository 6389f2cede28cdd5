import torch

torch.manual_seed(10)
expected = torch.tensor([-0.1029, 1.6810, -0.2708])
torch.testing.assert_close(torch.randn(3, device="cuda").cpu(), expected, atol=6e-5, rtol=0)
