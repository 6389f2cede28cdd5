import torch

from tests.raising import raises

torch.loom.init()
raises("AcceleratorError", "invalid device ordinal", lambda: torch.accelerator.current_stream(2))
