import torch

from tests.device.programs.fallback.prelude import half, kept, stats

x = half(4, 4)
y = x + x
y = torch.nn.functional.linear(y, x, x[0]).mul_(2).sub(1).softmax(-1)
y = (1 - y).masked_fill(y > 0, 0).t().contiguous()[1:].max()
y = torch.cat([x, x.clone().zero_(), torch.ones_like(x)]).repeat(2, 1).view(-1)
assert stats() == {}, stats()
for _ in range(3):
    y.exp()
    x.max(dim=0)  # of a whole tensor it is native
x.exp_()
assert stats() == {("exp", None): 3, ("max", None): 3, ("exp_", None): 1}, stats()
first = [line.splitlines()[0] for line in kept.lines]
assert first == [f"`aten::{op}` op ran on CPU instead of LOOM" for op in ("exp", "max", "exp_")], first
assert f'"{__file__}", line' in kept.lines[0] and "_fallback.py" not in kept.lines[0], kept.lines[0]

torch.loom.reset_fallback_stats()
assert torch.loom.fallback_stats() == {}
y.exp()
assert stats() == {("exp", None): 1} and len(kept.lines) == 4
