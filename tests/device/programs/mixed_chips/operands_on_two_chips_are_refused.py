import torch

from tests.raising import raises

a, b = torch.ones(2, device="loom:0"), torch.ones(2, device="loom:2")
raises("RuntimeError", "loom:0 and loom:2", lambda: a + b)
