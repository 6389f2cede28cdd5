import torch

from torch_loom.chips.estimator import Estimator


def refused(self, *rest):
    raise AssertionError("a cost was asked for")


Estimator.kernel_ns = refused
whole = torch.ones(300, 150, device="loom")
for rows in range(1, 301):
    for columns in range(1, 151):
        view = whole[:rows, :columns]
        torch.add(view, view)
assert torch.add(whole, 1.0).sum().item() == 90_000
