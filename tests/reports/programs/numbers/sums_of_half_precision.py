import torch

x = torch.tensor([32000.0] * 4 + [-32000.0] * 4, device="cuda").half()
assert x.sum().item() == x.sum(0).item() == 0
