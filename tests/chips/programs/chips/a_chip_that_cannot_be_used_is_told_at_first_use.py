import torch

from tests.raising import raises

assert torch.loom.device_count() == 2
raises("ChipError", "memory = '1KiB'", lambda: torch.ones(1, device="loom"))
raises("ChipError", "memory = '1KiB'", torch.loom.get_amp_supported_dtype)
torch.loom.configure(chip="atom")
assert torch.ones(1, device="loom").item() == 1
