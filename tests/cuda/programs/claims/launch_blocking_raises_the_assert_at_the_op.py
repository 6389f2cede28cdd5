import torch

from tests.raising import raises

x, index = torch.ones(3, device="cuda"), torch.tensor([7], device="cuda")
raises("AcceleratorError", "device-side assert triggered", lambda: x[index])
