import torch

loom = torch.loom
outer = torch.ones(1000).pin_memory("loom")
with loom.dry_run():
    assert outer.is_pinned()
    x = outer.to("loom", non_blocking=True)
    inner = torch.ones(1000).pin_memory("loom")
    inner.to("loom", non_blocking=True)
del x
assert inner.is_pinned() and inner.to("loom", non_blocking=True).sum().item() == 1000
