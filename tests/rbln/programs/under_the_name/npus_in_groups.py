import torch

import torch_loom  # noqa: F401

assert (torch.rbln.device_count(), torch.rbln.physical_device_count()) == (1, 6)
torch.rbln.device_summary()
alone = 16857746636
assert torch.rbln.get_device_properties(0).total_memory == 4 * alone
assert torch.empty(50 << 30, dtype=torch.uint8, device="rbln").data_ptr() != 0
