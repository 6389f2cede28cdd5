import torch
import torch.nn.functional as F

from tests.torch.programs.device_asserts.start import asserts, i

w = torch.ones(3, 4, device="loom", requires_grad=True)
loss = F.embedding_bag(i[None], w, mode="sum").sum() + F.embedding_bag(i[None], w, mode="max").sum()
loss.backward()
assert w.grad.shape == w.shape
asserts(w.grad.cpu, lambda: w.nonzero())
