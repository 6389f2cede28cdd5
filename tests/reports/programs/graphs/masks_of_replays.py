import torch

x = torch.randn(20, 16, 8, 8, device="cuda", requires_grad=True)
graphed = torch.cuda.make_graphed_callables(torch.nn.Dropout(0.2), (x,))
results = []
for dropout in (torch.nn.Dropout(0.2), graphed):
    torch.manual_seed(0)
    y = x.clone()
    for _ in range(3):
        before, y = y, dropout(y).clone()
        assert not torch.equal(before, y)
    results.append(y)
assert torch.equal(*results)
