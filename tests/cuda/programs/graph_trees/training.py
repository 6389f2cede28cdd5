import torch
from torch import nn

from tests.cuda.programs.graph_trees.head import num_graphs

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.0)).cuda()
plain = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).cuda()
plain.load_state_dict(model.state_dict())
compiled = torch.compile(model, backend="cudagraphs")
optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, plain)]
for number in range(6):
    x = torch.randn(4, 8, device="cuda")
    results = []
    for each, optimizer in zip((compiled, plain), optimizers, strict=True):
        optimizer.zero_grad()
        loss = each(x).square().mean()
        loss.backward()
        optimizer.step()
        results.append(loss.item())
    assert abs(results[0] - results[1]) < 1e-5, (number, results)
assert torch.equal(model[1].num_batches_tracked, plain[1].num_batches_tracked)
assert torch.allclose(model[1].running_mean, plain[1].running_mean)
assert num_graphs() == 2  # forward and backward
with torch.no_grad():
    for _ in range(3):
        assert torch.allclose(compiled(x), plain(x), atol=1e-5)
# A graph with a tensor of the host is not captured, and its backward pass runs all the same.
mixed = torch.compile(lambda a, b: a + b.cuda(), backend="cudagraphs")
a = torch.ones(3, device="cuda", requires_grad=True)
mixed(a, torch.ones(3)).sum().backward()
assert a.grad.tolist() == [1, 1, 1]
