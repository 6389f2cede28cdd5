import torch

from tests.raising import raises

embedding = torch.nn.Embedding(10, 3).cuda()
assert embedding(torch.tensor([1, 2]).cuda()).shape == (2, 3)
cached = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
del cached
out = embedding(torch.tensor([3, 10]).cuda())  # returns: nobody has waited


def asserts(body):
    raises("AcceleratorError", "CUDA error: device-side assert triggered", body)
