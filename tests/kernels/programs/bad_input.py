# Arguments and grids that cannot be are refused at the launch, by a sentence.
import torch

from tests.kernels.programs import kernels
from tests.raising import raises

x, out = torch.ones(8, device="cuda"), torch.zeros(8, device="cuda")
raises(
    "ValueError",
    "cannot be accessed from cuda:0: its tensor is on cpu",
    lambda: kernels.one[(1,)](torch.ones(8), out),
)
raises("ValueError", "a grid of (1, 70000, 1) programs", lambda: kernels.one[(1, 70000)](x, out))
kernels.one[(1,)](x, out)
assert out[0].item() == 2
