import torch

from tests.reports.programs.processes.child import REFUSED, child_says

assert torch.cuda.device_count() == torch.get_device_module("cuda").device_count() > 0
assert not torch.cuda.is_initialized() and child_says() == "2.0"
torch.ones(1, device="cuda")
assert child_says() == REFUSED
