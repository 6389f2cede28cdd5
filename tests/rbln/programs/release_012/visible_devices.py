import torch

import torch_loom  # noqa: F401

# RBLN_VISIBLE_DEVICES goes before RBLN_DEVICES.
assert torch.rbln.device_count() == torch.rbln.physical_device_count() == 2
physical = [torch.loom.get_device_properties(i).extra["physical_index"] for i in range(2)]
assert physical == [3, 1], physical
torch.rbln.device_summary()
