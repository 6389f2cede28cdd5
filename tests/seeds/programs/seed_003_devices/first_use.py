import threading

import torch

import torch_loom  # noqa: F401
from tests.raising import raises

loom = torch.loom
assert loom.is_available() and loom.device_count() == 1
assert not loom.is_initialized() and threading.active_count() == 1
loom.manual_seed(5)
loom.init()
assert loom.is_initialized() and loom.initial_seed() == 5
loom.manual_seed(6)
loom.init()  # no second time: the seed of before is not set again
loom._lazy_init()
assert loom.initial_seed() == 6
assert loom.get_device_properties(0).total_memory == 32 << 20
raises("InvalidDeviceError", "Invalid device index 1", lambda: loom.set_device(1))
