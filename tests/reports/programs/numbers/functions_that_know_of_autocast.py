import torch
from torch.amp import custom_bwd, custom_fwd

from tests.reports.programs.numbers.function import product

decorators = custom_fwd(device_type="cuda"), custom_bwd(device_type="cuda")
assert product(*decorators) == (torch.float16, torch.float32)
