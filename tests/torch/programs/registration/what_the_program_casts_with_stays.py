"""A program's own kernels and fallback for autocast are not replaced at first use."""

import torch

everything = torch.library.Library("_", "IMPL")
everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
library = torch.library.Library("aten", "IMPL")
library.impl("mm", lambda x, y: torch.full((1, 1), 40.0, device="loom"), "AutocastPrivateUse1")
x = torch.ones(2, 2, device="loom")
with torch.autocast("loom", dtype=torch.bfloat16):
    assert torch.mm(x, x).tolist() == [[40]]
    assert torch.bmm(x[None], x[None]).dtype is torch.bfloat16
    assert (x + 1).dtype is torch.float32
