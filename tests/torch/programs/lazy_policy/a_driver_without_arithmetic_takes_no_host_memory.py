import torch

from tests.raising import raises

stats = lambda name: torch.loom.memory_stats()[name]
x = torch.zeros(1 << 40, dtype=torch.uint8, device="loom").fill_(1)
x.copy_(torch.ones(1, dtype=torch.uint8))
y = torch.arange(10, device="loom")
z = torch.randn(3, 4, device="loom")
w = torch.ones(2, 2).to("loom", torch.float64)
w.cpu(), z.to("cpu", torch.float16)
raises("RuntimeError", "does not broadcast", lambda: w.copy_(torch.ones(3)))
assert (y.shape, y.dtype, w.dtype) == ((10,), torch.int64, torch.float64)
assert (stats("lazy.host_bytes"), stats("lazy.pending_tensors")) == (0, 4)
assert torch.loom.memory_allocated() == 0
raises("OutOfMemoryError", "memory", lambda: x + 1)
assert (z @ z.t()).shape == (3, 3) and stats("lazy.pending_tensors") == 3
assert torch.loom.memory_allocated() == 512
