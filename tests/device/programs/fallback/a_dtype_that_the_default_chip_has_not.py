import torch

from tests.device.programs.fallback.prelude import stats

x = torch.ones(4, device="loom").to(torch.float8_e4m3fn)  # a copy
assert stats() == {}, stats()
y = torch.ones(4, device="loom", dtype=torch.uint16)
assert (y == y).all()
assert stats() == {("eq", torch.uint16): 1}, stats()
# An index beside floating-point values is no dtype to compute in.
torch.ones(4, device="loom").index_select(0, torch.zeros(2, dtype=torch.int64, device="loom"))
assert len(stats()) == 1
