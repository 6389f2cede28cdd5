import sys

import torch_loom.as_cuda  # noqa: F401

assert "torch" not in sys.modules
import torch

assert torch.ones(1, device="cuda").is_cuda and torch.loom.device_count() == torch.cuda.device_count()
