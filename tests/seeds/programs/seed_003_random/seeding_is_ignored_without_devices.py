import warnings

import torch

from tests.raising import raises

warnings.simplefilter("error")
for seed in (torch.loom.manual_seed, torch.loom.manual_seed_all):
    assert seed(3) is None
assert torch.loom.seed() is torch.loom.seed_all() is None
assert not torch.loom.is_available() and not torch.loom.is_initialized()
raises("NoDeviceError", "No loom devices", torch.loom.initial_seed)
