import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def kept(use_reentrant):
    parts = [nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.GELU()]
    model = nn.Sequential(*(nn.Sequential(*parts) for _ in range(4))).cuda()
    x = torch.randn(1024, 256, device="cuda", requires_grad=True)
    for _ in range(2):  # gradients exist the second time
        before, y = torch.cuda.memory_allocated(), x
        for layer in model:
            y = layer(y) if use_reentrant is None else checkpoint(layer, y, use_reentrant=use_reentrant)
        num_bytes = torch.cuda.memory_allocated() - before
        y.sum().backward()
        del y
    return num_bytes


assert kept(None) > 2.9 * kept(True)
assert kept(True) == kept(False)
