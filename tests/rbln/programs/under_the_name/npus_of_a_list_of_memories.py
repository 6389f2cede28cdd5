import torch

import torch_loom  # noqa: F401

totals = [torch.rbln.get_device_properties(i).total_memory for i in range(2)]
assert totals == [3 << 30, 8 << 30], totals
