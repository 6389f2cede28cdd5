import torch

x = torch.zeros(100, device="loom")
assert torch.loom.memory_allocated() == 512
assert {v for k, v in torch.loom.memory_stats().items() if k.startswith("lazy.")} == {0}
