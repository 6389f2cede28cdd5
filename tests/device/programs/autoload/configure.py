import torch

import torch_loom  # noqa: F401
from tests.raising import raises

torch.loom.configure(devices=3, memory="32MiB", visible_devices=(2,))
assert torch.loom.device_count() == 1 and not torch.loom.is_initialized()
assert torch.loom.get_device_properties().total_memory == 32 << 20
raises("AlreadyInitializedError", "configure(devices=2)", lambda: torch.loom.configure(devices=2))
assert torch.loom.device_count() == 1
