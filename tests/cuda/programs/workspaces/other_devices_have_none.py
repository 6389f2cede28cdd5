import torch

from torch_loom.device._core.device_index import DEVICE_TYPE

x = torch.ones(8, 8, device=DEVICE_TYPE)
base = torch.loom.memory_allocated()
x @ x
assert torch.loom.memory_allocated() == base
