import copy

import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 4).cuda()
eager, batches = copy.deepcopy(model), torch.randn(3, 3, 4, device="cuda")
graphed = torch.cuda.make_graphed_callables(model, (torch.randn(3, 4, device="cuda"),))
model.zero_grad()
for x in batches:
    graphed(x).square().sum().backward()
eager(batches[-1]).square().sum().backward()
torch.testing.assert_close(model.weight.grad, 2 * eager.weight.grad)
