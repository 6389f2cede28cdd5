import torch

assert torch.loom.amp.amp_definitely_not_available() is True
