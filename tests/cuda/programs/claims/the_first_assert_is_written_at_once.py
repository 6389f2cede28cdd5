import sys

import torch

from tests.raising import raises

x, index = torch.ones(3, device="cuda"), torch.tensor([7], device="cuda")
x[index]
print("launched", file=sys.stderr)
raises("AcceleratorError", "device-side assert triggered", torch.cuda.synchronize)
