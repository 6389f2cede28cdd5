"""See which ops do not run on the chip itself.

    TORCH_LOOM_DEVICE_NAME=rbln TORCH_RBLN_LOG_LEVEL=INFO python examples/rbln/fallback_log.py

An op outside the chip's list, or on another dtype than its own, runs all the same, on the CPU. The log tells
of each once, at the level INFO, with the lines of Python that called it.
"""

import torch

x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float16, device="rbln")
doubled = x * 2
total = doubled.cumsum(0)  # not in the chip's list
precise = torch.sigmoid(x.float())  # in the list, but float32 is not a dtype of the chip

print("total:", total.tolist())
print("precise:", [round(value, 4) for value in precise.tolist()])
