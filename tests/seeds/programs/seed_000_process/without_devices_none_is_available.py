import torch

import torch_loom  # noqa: F401

assert torch.rbln.is_available() is False
assert torch.rbln.device_count() == 0
