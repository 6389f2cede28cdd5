import torch
from torch import nn

from tests.cuda.programs.capture_errors.head import NOT_PERMITTED, PREVIOUS, first_line


class Product(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8, device="cuda")

    def forward(self, x):
        return torch.prod(self.layer(x), 1)


sample = torch.randn(4, 8, device="cuda")
for function in (Product(), lambda x: x.gather(0, torch.tensor([[0]], device="cuda"))):
    try:
        torch.cuda.make_graphed_callables(function, (sample,))
    except torch.AcceleratorError as error:
        assert first_line(error) == PREVIOUS and first_line(error.__context__) == NOT_PERMITTED
    else:
        raise AssertionError(function)
index = torch.tensor([[0]], device="cuda")
gathered = torch.cuda.make_graphed_callables(lambda x: x.gather(0, index), (sample,))
y = torch.randn(4, 8, device="cuda")
assert torch.equal(gathered(y), y[:1, :1])

# New masks in each replay, and after the same seed eager's.
x = torch.randn(20, 16, device="cuda", requires_grad=True)
dropout = torch.cuda.make_graphed_callables(nn.Dropout(0.2), (x,))
results = []
for function in (nn.Dropout(0.2), dropout):
    torch.manual_seed(0)
    results.append([function(x).clone() for _ in range(3)])
assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
assert not torch.equal(results[0][0], results[0][1])

# Gradients are static: a parameter's takes the memory of the first, which the next replay overwrites.
layer = torch.cuda.make_graphed_callables(nn.Linear(8, 8, device="cuda"), (sample,))
twin = nn.Linear(8, 8, device="cuda")
twin.load_state_dict(layer.state_dict())
layer.zero_grad()
for number in range(3):
    y = torch.randn(4, 8, device="cuda")
    twin.zero_grad()
    layer(y).square().sum().backward()
    twin(y).square().sum().backward()
    times = 1 if number == 0 else 2
    torch.testing.assert_close(layer.weight.grad, times * twin.weight.grad)
