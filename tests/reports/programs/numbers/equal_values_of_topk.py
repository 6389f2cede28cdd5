import torch

assert torch.tensor([3, 2, 3, 2, 1, 1], device="cuda").topk(2).indices.tolist() == [2, 0]
