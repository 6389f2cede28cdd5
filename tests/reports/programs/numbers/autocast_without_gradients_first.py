import torch

layer, x = torch.nn.Linear(2, 2).cuda(), torch.randn(2, 2).cuda()
with torch.autocast("cuda"):
    with torch.no_grad():
        layer(x)
    y = layer(x)
assert y.dtype == torch.float16 and y.grad_fn is not None
y.float().sum().backward()
assert layer.weight.grad is not None
