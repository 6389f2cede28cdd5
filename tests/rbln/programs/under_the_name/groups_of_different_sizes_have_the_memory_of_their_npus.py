import torch

import torch_loom  # noqa: F401
from tests.raising import raises
from torch_loom import chips

torch.rbln.device_summary()
assert torch.rbln.device_count() == 2
one = chips.load("atom").memory_bytes
totals = [torch.rbln.get_device_properties(i).total_memory for i in range(2)]
assert totals == [2 * one, 4 * one], totals
assert [torch.rbln.mem_get_info(i)[1] for i in range(2)] == totals
big = torch.empty(40 << 30, dtype=torch.uint8, device="rbln:0")
raises("OutOfMemoryError", "NPU 0 has a total capacity of 31.4", big.data_ptr)
x = torch.empty(40 << 30, dtype=torch.uint8, device="rbln:1")
assert x.data_ptr() != 0
y = torch.ones(4, device="rbln:0").to("rbln:1")
assert y.device.index == 1
