import torch

assert torch.remainder(torch.tensor([5, 7], device="cuda").int(), 0).tolist() == [-1, -1]
