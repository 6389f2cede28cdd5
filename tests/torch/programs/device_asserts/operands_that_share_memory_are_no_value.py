import torch

from tests.torch.programs.device_asserts.start import asserts, x

i = torch.tensor([0, 1], device="loom")
try:
    x.index_put_((i,), x[:2], accumulate=True)
except RuntimeError as error:
    assert "single memory location" in str(error) and not isinstance(error, torch.AcceleratorError)
else:
    raise AssertionError("no error")
assert x.sum().item() == 12
j = torch.tensor([0, 7], device="loom")
x.scatter_add_(0, j[:, None].expand(2, 4), x.new_ones(2, 4))
asserts(torch.loom.synchronize)
