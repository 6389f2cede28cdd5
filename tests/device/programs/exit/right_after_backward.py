import torch

x = torch.ones(2, device="loom", requires_grad=True)
(x * 2).sum().backward()
