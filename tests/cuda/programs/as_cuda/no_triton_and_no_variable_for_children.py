import os

given = set(os.environ)
import torch
import torch._inductor.config as settings

assert settings.triton_disable_device_detection
# Of Inductor's variables PyTorch itself sets some, such as that of its cache.
assert "TORCHINDUCTOR_TRITON_DISABLE_DEVICE_DETECTION" not in set(os.environ) - given
assert torch.cuda.amp.autocast.__module__ == "torch.cuda.amp.autocast_mode"  # which warns
