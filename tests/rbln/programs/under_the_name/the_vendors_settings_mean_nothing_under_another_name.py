import torch

import torch_loom  # noqa: F401

assert torch.loom.device_count() == torch.loom.physical_device_count() == 2
assert torch.ones(2, device="loom:1").tolist() == [1, 1]
