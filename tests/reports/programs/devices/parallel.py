import torch
from torch import nn

devices, num_parameters = [], []


class Noted(torch.autograd.Function):
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
        self.layer, self.num_calls = nn.Linear(2, 2), 0

    def forward(self, x):
        self.num_calls += 1
        num_parameters.append(len(list(self.parameters())))
        return Noted.apply(self.layer(x)).sum()
