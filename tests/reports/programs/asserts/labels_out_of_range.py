import torch
import torch.nn.functional as F

from tests.raising import raises

x = torch.randn(4, 3, device="cuda", requires_grad=True)
loss = F.cross_entropy(x, torch.tensor([0, 1, 2, -100]).cuda())
loss.backward()
assert loss.item() > 0 and x.grad[-1].tolist() == [0, 0, 0]
loss = F.cross_entropy(x, torch.tensor([0, 1, 2, 3]).cuda())
loss.backward()
raises("AcceleratorError", "CUDA error: device-side assert triggered", loss.item)
