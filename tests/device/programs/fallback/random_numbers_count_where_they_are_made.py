import torch

from tests.device.programs.fallback.prelude import stats

torch.randn(4, device="loom", dtype=torch.float16)
assert stats() == {("normal_", None): 1}, stats()
torch.arange(4, device="loom", dtype=torch.float16)
assert len(stats()) == 1, stats()
