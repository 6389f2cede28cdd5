import torch

import torch_loom  # noqa: F401
from tests.raising import raises

assert torch.loom.device_count() == torch.accelerator.device_count() == 2
assert torch.ones(1, device="loom:1").device.index == 1
raises("InvalidDeviceError", "Invalid device index 2", lambda: torch.loom.set_device(2))
assert torch.loom.mem_get_info(1)[1] == 64 << 20
