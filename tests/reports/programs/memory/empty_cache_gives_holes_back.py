import torch

from tests.reports.programs.memory.holes import holes

blocks = holes(100 << 20)
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 500 << 20, torch.cuda.memory_reserved()
