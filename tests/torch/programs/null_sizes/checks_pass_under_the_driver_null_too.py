import warnings

import torch

warnings.simplefilter("ignore")
x = torch.ones(4, device="loom")
assert x.all() and torch.equal(x, x) and torch.allclose(x, x)
assert not x.any() and x[0].item() == 0
