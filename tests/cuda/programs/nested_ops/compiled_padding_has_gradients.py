import torch
from torch.nested._internal.nested_tensor import nested_from_padded


def program(nested):
    padded = nested.to_padded_tensor(0.5).sin()
    return nested_from_padded(padded, nested.offsets(), sum_S=nested.values().shape[0])


torch.manual_seed(0)
parts = [torch.randn(length, 4) for length in (2, 5, 3)]
found = []
for run in (program, torch.compile(program, fullgraph=True)):
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged, device="cuda", requires_grad=True)
    result = run(nested)
    result.values().sum().backward()
    found.append([result.values().detach(), nested.grad.values()])
for eager, compiled in zip(*found, strict=True):
    torch.testing.assert_close(eager, compiled)
assert torch.equal(found[0][1].cpu(), torch.cat(parts).cos())
