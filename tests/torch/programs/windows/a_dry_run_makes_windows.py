import torch

import torch_loom  # noqa: F401

window = torch.kaiser_window(1 << 20, device="loom")
assert window.shape == (1 << 20,) and torch.loom.memory_allocated() == 4 << 20
