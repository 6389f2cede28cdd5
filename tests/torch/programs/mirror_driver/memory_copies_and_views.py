import torch

x = torch.arange(12.0, device="loom").reshape(3, 4)
here = torch.loom.memory_allocated()
y = x.T[1:].to("loom:1", non_blocking=True)
assert y.cpu().tolist() == [[1, 5, 9], [2, 6, 10], [3, 7, 11]]
pinned = torch.empty(3, 4, pin_memory=True)
pinned.copy_(x, non_blocking=True)
torch.loom.synchronize()
assert torch.equal(pinned, x.cpu()) and pinned.is_pinned()
x.resize_(6, 4)[3:] = 7
assert x.sum().item() == 66 + 84
assert x.nonzero().shape == (23, 2)
out = torch.empty(0, device="loom")
torch.cat([x, x], out=out)
assert out.shape == (12, 4)
z = torch.zeros(4, device="loom")
del x, y, out, z
assert torch.loom.memory_allocated() == 0
try:
    torch.empty(2 << 30, dtype=torch.uint8, device="loom")
except torch.OutOfMemoryError:
    pass
else:
    raise AssertionError
