import torch

import torch_loom  # noqa: F401

torch.rbln.device_summary()
assert torch.rbln.get_device_properties(0).extra["physical_index"] == 5
assert torch.rbln.get_device_properties(1).extra["physical_index"] == 4
assert torch.ones(2, device="rbln:1").device.index == 1
