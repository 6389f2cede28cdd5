"""Uses the extension beside it."""

import loom_test_scale
import torch

x = torch.arange(1000.0, device="cuda")
assert torch.equal(loom_test_scale.scale(x, 3.0), 3 * x)
