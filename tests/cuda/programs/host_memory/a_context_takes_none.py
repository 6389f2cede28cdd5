"""The memory that a context occupies on the device is never touched: a small limit of the host is enough."""

import resource

import torch

taken = torch.cuda.device_memory_used()
assert torch.ones(3, device="cuda").sum().item() == 3
assert torch.cuda.device_memory_used() >= taken > 400 << 20, taken
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 450 << 10
