import torch
from torch import nn


def run(first, second):
    torch.manual_seed(0)
    a, b = nn.Linear(8, 16).to(first), nn.Linear(16, 4).to(second)
    x = torch.arange(16.0).reshape(2, 8).div(16).to(first)
    optimizer = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        b(a(x).relu().to(second)).square().sum().backward()
        optimizer.step()
    return [p.detach().cpu() for p in (*a.parameters(), *b.parameters())]


for mine, reference in zip(run("loom:0", "loom:2"), run("cpu", "cpu"), strict=True):
    torch.testing.assert_close(mine, reference)
# A side stream of each, ordered by an event between them.
s, t = torch.loom.Stream(0), torch.loom.Stream(2)
with torch.loom.stream(s):
    x = torch.full((1000,), 2.0, device="loom:0") * 2
    event = s.record_event()
with torch.loom.stream(t):
    t.wait_event(event)
    y = x.to("loom:2") + 1
t.synchronize()
assert torch.equal(y.cpu(), torch.full((1000,), 5.0))
