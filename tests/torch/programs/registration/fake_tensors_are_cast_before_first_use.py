"""Autocast decides the dtype of fake results, too, in a process that has used no device."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

with FakeTensorMode(), torch.autocast("loom", dtype=torch.bfloat16):
    x = torch.empty(4, 4, device="loom")
    assert (x @ x).dtype is torch.bfloat16
assert not torch.loom.is_initialized()
