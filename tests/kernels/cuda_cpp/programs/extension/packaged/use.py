"""Uses the extension beside it."""

from importlib import import_module

import torch

# After torch, whose libraries it is linked with.
extension = import_module("loom_test_scale")
x = torch.arange(1000.0, device="cuda")
assert torch.equal(extension.scale(x, 3.0), 3 * x)
