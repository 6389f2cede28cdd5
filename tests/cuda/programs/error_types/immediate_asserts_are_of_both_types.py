import torch
import torch.nn.functional as F

from tests.cuda.programs.error_types.start import kind

x, i = torch.ones(3, 4, device="cuda"), torch.tensor([0, 7], device="cuda")
for call in (
    lambda: F.embedding(i, x),
    lambda: x.index_select(0, i),
    lambda: x[:, i],
    lambda: F.cross_entropy(x[:2], i),
):
    own = kind(call)
    assert issubclass(own, IndexError) and issubclass(own, torch.AcceleratorError), own
for call in (lambda: x.gather(0, i[:, None]), lambda: torch.bernoulli(x * 2)):
    assert kind(call) is torch.AcceleratorError
with torch.cuda.stream(torch.cuda.Stream()):
    assert issubclass(kind(lambda: F.embedding(i, x).cpu()), IndexError)
assert kind(lambda: x.index_select(5, i)) is IndexError
assert kind(lambda: x @ x) is RuntimeError
assert (x * 2).sum().item() == 24
