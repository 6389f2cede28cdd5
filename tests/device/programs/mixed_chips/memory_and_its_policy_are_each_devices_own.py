import torch

from tests.raising import raises

loom = torch.loom
eager, lazy = torch.empty(1000, device="loom:0"), torch.empty(1000, device="loom:2")
assert loom.memory_allocated(0) == 4096 and loom.memory_allocated(2) == 0
assert loom.memory_stats(2)["lazy.pending_tensors"] == 1
assert loom.memory_stats(0)["lazy.pending_tensors"] == 0
lazy.fill_(2).add_(1)
assert loom.memory_allocated(2) == 4096
# Between the policies, both ways, in device and dtype.
assert torch.equal(lazy.to("loom:0").cpu(), torch.full((1000,), 3.0))
assert torch.equal(torch.ones(5, device="loom:0").to("loom:2").half().cpu(), torch.ones(5).half())


def too_much():
    torch.empty(2 << 30, dtype=torch.uint8, device="loom:1")


raises("OutOfMemoryError", "capacity of 1.00 GiB", too_much)
torch.empty(2 << 30, dtype=torch.uint8, device="loom:0")
