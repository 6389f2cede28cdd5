import torch
from torch import nn

devices = []


class Noting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        devices.append(("forward", torch.cuda.current_device()))
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        devices.append(("backward", torch.cuda.current_device()))
        return gradient


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return Noting.apply(self.layer(x))


model = Model().cuda()
x = torch.arange(8.0, device="cuda").reshape(4, 2)
nn.DataParallel(model)(x).sum().backward()
assert sorted(devices) == [(kind, i) for kind in ("backward", "forward") for i in (0, 1)], devices
assert model.layer.weight.grad.tolist() == [[12, 16], [12, 16]]
