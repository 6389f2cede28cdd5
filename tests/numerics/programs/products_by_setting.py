"""Products under TORCH_LOOM_MATMUL: those of the chip's instructions, on the device and on the CPU."""

from __future__ import annotations

import torch

a = torch.randn(5, 64, generator=torch.Generator().manual_seed(1)).half()
b = torch.randn(64, 9, generator=torch.Generator().manual_seed(2)).half()

from torch_loom.numerics.tensor_cores import TensorCores

with TensorCores("h100"):
    wanted = a @ b
device = torch.device("loom")
assert torch.equal((a.to(device) @ b.to(device)).cpu(), wanted)
assert torch.equal(a @ b, wanted)
left = a.to(device).requires_grad_()
(left @ b.to(device)).sum().backward()
assert left.grad is not None
print("products are the chip's")
