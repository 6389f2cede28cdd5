import os

import torch

import torch_loom  # noqa: F401

torch.rbln.set_device(1)
torch.rbln.reset_peak_memory_stats()
assert torch.rbln.is_initialized()
os.environ["TORCH_RBLN_EAGER_MALLOC"] = "1"
x = torch.empty(1024, device="rbln")
assert torch.rbln.memory_allocated() == x.nbytes
os.environ["TORCH_RBLN_EAGER_MALLOC"] = "0"
y = torch.empty(1024, device="rbln:0")
assert torch.rbln.memory_allocated(0) == y.nbytes
