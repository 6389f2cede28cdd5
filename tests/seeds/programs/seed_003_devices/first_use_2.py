import torch

import torch_loom  # noqa: F401

state = torch.loom.get_rng_state()
assert torch.loom.is_initialized() and state.numel() == 16
