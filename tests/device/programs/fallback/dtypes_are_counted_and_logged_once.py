import torch

from tests.device.programs.fallback.prelude import half, kept, stats

x = torch.ones(4, device="loom")  # storable, not computed in
x.half().float().view(2, 2).clone().copy_(torch.zeros(2, 2)).fill_(1)
assert stats() == {}, stats()
x + x, x + x, x.exp()
assert stats() == {("add", torch.float32): 2, ("exp", None): 1}, stats()
line = "`aten::add` op ran on CPU instead of LOOM: float32 is not a dtype of the chip 'atom'"
assert kept.lines[0].splitlines()[0] == line, kept.lines[0]
half(4).masked_fill(half(4) > 0, 1)  # masks may be bool
half(4).index_select(0, torch.zeros(2, dtype=torch.int64, device="loom"))
assert len(stats()) == 2
x.bool().logical_not()
assert stats()["logical_not", torch.bool] == 1
