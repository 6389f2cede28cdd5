"""With TORCH_LOOM_LIBRARIES=0 a library that does not know the device's name takes the CPU."""

import safetensors.torch
import torch
from accelerate import Accelerator

assert Accelerator().device.type == "cpu"
assert torch.ones(1, device="loom").device.type == "loom"
assert safetensors.torch.load_file.__module__ == "safetensors.torch"
