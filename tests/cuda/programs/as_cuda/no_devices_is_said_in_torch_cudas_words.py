import torch

import torch_loom  # noqa: F401
from tests.raising import raises

assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
for use in (lambda: torch.ones(2, device="cuda"), lambda: torch.ones(2).cuda(), torch.cuda.init):
    raises("RuntimeError", "No CUDA GPUs are available: TORCH_LOOM_DEVICES='0'", use)
