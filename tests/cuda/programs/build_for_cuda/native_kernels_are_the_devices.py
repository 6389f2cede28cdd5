"""Ops that PyTorch has kernels in Python for, which are for GPUs of some capability, run on the device."""

import torch

a, b = torch.randn(8, 32, 1, device="cuda"), torch.randn(8, 1, 32, device="cuda")
torch.testing.assert_close(torch.bmm(a, b).cpu(), torch.bmm(a.cpu(), b.cpu()))
lists = [[torch.randn(16, 16, device="cuda", dtype=torch.bfloat16) for _ in range(3)] for _ in range(2)]
for one, left, right in zip(
    torch._foreach_mm(*lists) if hasattr(torch, "_foreach_mm") else (), *lists, strict=False
):
    torch.testing.assert_close(one, left @ right)
values, places = torch.randn(64, 1024, device="cuda").topk(8)
assert values.device.type == places.device.type == "cuda"
total = torch.randn(64, 4096, device="cuda").sum(1)
assert total.shape == (64,)
target = torch.zeros(128, 64, device="cuda").scatter_add(
    0, torch.zeros(4, 64, dtype=torch.long, device="cuda"), torch.ones(4, 64, device="cuda")
)
assert target[0].tolist() == [4.0] * 64
registry = torch._native.registry
names = {node.dsl_name for graph in registry._graphs.values() for node in graph if node.active}
assert names <= {"native"}, names
