import torch

import torch_loom
from tests.raising import raises

rbln = torch.rbln
staging = torch.arange(1000, dtype=torch.float16, device="rbln")
assert rbln.memory_allocated() == 0  # lazy
rbln.bind_device_memory(staging)
rbln.bind_device_memory(staging.view(10, 100))
assert rbln.memory_allocated() == 2048
assert staging.tolist() == [float(i) for i in range(1000)]

target = torch.empty(500, dtype=torch.float16, device="rbln")
rbln.set_device_layout_like(target, staging)
assert rbln.memory_allocated() == 2048 + 1024 and target.shape == (500,)
moved = rbln.memory_stats()["lazy.materializations"]
target.copy_(staging[:500])
assert rbln.memory_stats()["lazy.materializations"] == moved
assert torch.equal(target.cpu(), staging[:500].cpu())

WHOLE = "all of its storage and contiguous"
raises("DeviceLayoutError", WHOLE, lambda: rbln.bind_device_memory(staging[1:]))
raises("DeviceLayoutError", WHOLE, lambda: rbln.bind_device_memory(staging.view(10, 100).T))
raises("DeviceLayoutError", "on cpu", lambda: rbln.bind_device_memory(torch.ones(2)))
raises("DeviceLayoutError", "a int", lambda: rbln.bind_device_memory(3))
lazy = torch.ones(4, dtype=torch.float16, device="rbln")
raises("DeviceLayoutError", "no device memory yet", lambda: rbln.set_device_layout_like(target, lazy))
other = torch.ones(4, device="rbln:1")
raises("DeviceLayoutError", "the same device", lambda: rbln.set_device_layout_like(target, other))
whole = torch.ones(4, device="rbln")
raises("DeviceLayoutError", "the same dtype", lambda: rbln.set_device_layout_like(whole, staging))
assert issubclass(torch_loom.errors.DeviceLayoutError, RuntimeError)
