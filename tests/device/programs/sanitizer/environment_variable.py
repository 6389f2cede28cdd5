import torch

x = torch.ones(64, 32, device="loom")
assert torch.loom.sanitizer.is_enabled()
with torch.Stream("loom"):
    x.add_(1)
