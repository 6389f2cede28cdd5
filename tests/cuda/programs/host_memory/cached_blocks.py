"""What is cached goes back before a write that the host has no memory for."""

import torch

device = torch.accelerator.current_accelerator().type
kept = [torch.ones(100 << 20, device=device) for _ in range(3)]
del kept
assert torch.accelerator.memory_reserved() == 1200 << 20
# So large that it may never be written: the driver does not refuse it.
large = torch.ones(270 << 20, device=device)
assert torch.accelerator.memory_reserved() == 1080 << 20
assert large[-1].item() == 1
