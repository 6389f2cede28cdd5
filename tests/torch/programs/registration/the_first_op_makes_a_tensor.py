"""An op that makes a tensor may be the first on a device, though its kernel is the engine's."""

import torch

assert not torch.loom.is_initialized()
assert torch.tril_indices(2, 2, device="loom").tolist() == [[0, 1, 1], [0, 0, 1]]
assert torch.loom.is_initialized()
