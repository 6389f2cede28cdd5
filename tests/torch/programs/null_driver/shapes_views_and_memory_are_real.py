import torch

x = torch.zeros(3, 4, device="loom")
assert torch.loom.memory_allocated() == 512
y = x.T[1:]
assert y.data_ptr() == x.data_ptr() + 4 and y.shape == (3, 3)
assert torch.loom.memory_allocated() == 512
z = y @ x.to("loom:1").to("loom:0")
assert z.shape == (3, 4) and torch.loom.memory_allocated() == 1024
assert torch.add(z, 1, out=torch.empty(0, device="loom")).shape == (3, 4)
big = torch.empty(60 << 30, dtype=torch.uint8, device="loom")
try:
    torch.empty(60 << 30, dtype=torch.uint8, device="loom")
except torch.OutOfMemoryError:
    del big
else:
    raise AssertionError("160 GB fit into 80")
assert torch.loom.memory_allocated() == 1024
