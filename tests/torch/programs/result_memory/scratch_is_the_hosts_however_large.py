import torch
import torch.nn.functional as F

import tests.torch.programs.result_memory.program  # noqa: F401

x = torch.randn(1, 64, 256, 256, generator=torch.Generator().manual_seed(1))
weight = torch.randn(64, 64, 3, 3, generator=torch.Generator().manual_seed(2))
with torch.backends.mkldnn.flags(enabled=False):
    for _ in range(2):
        found = F.conv2d(x.to("loom"), weight.to("loom"), dilation=2, padding=2)
        assert torch.equal(found.cpu(), F.conv2d(x, weight, dilation=2, padding=2))
        del found
assert torch.loom.memory_stats()["num_ooms"] == 0
