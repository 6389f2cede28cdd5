"""Add two float16 tensors on the device and print the sum.

    TORCH_LOOM_DEVICE_NAME=rbln python examples/rbln/basic_add.py

The tensors take device memory when the addition needs them, and not before.
"""

import torch

a = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float16, device="rbln")
b = torch.full((2, 2), 0.5, dtype=torch.float16, device="rbln")
total = a + b

print(total)
print(total.cpu())
print(f"{torch.rbln.memory_allocated()} bytes of {torch.rbln.get_device_name()} in use")
