import torch

a = torch.ones(8, 8, device="cuda")
before, side = torch.cuda.memory_allocated(), torch.cuda.Stream()
b = a @ a
torch.cuda.synchronize()
assert torch.cuda.memory_allocated() - before == (32 << 20) + 512
with torch.cuda.stream(side):
    c = a @ a
torch.cuda.synchronize()
assert torch.cuda.memory_allocated() - before == (64 << 20) + 1024
