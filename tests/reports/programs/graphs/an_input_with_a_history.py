import torch

from tests.raising import raises

a, b = (torch.randn(1, 4, 8, 3, 3, device="cuda") for _ in range(2))
t = torch.randn(1, 4, 8, 2, device="cuda", requires_grad=True)
b[..., 1, 1] = t[..., 1]
raises(
    "RuntimeError",
    "'torch::autograd::CopySlices' has a stale reference to the default stream",
    lambda: torch.cuda.make_graphed_callables(lambda x, y: x + y, (a, b)),
)
