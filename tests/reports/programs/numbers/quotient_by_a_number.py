import torch

x = torch.tensor([49.5], device="cuda")
assert (x / 50).item() == 0.9899999499320984
assert (x / torch.tensor([50.0], device="cuda")).item() != 0.9899999499320984
x /= 50
assert x.item() == 0.9899999499320984
