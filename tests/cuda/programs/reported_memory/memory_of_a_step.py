import torch
from torch import nn

from tests.cuda.programs.reported_memory.prepare import MIB

m = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 1024, bias=False)).cuda()
m(torch.ones(1, 1024, device="cuda")).sum().backward()
m.zero_grad()
torch._C._cuda_clearCublasWorkspaces()
base = torch.cuda.memory_allocated()
assert base == 8 * MIB
x = torch.rand(4, 256, 1024).cuda()
y = m(x).sum()
forward = torch.cuda.memory_allocated() - base
assert forward == 32 * MIB + 4 * MIB + 4 * MIB + 512  # a workspace, the input, the first layer's result, y
y.backward()
after = torch.cuda.memory_allocated() - base
assert after == 64 * MIB + 4 * MIB + 8 * MIB + 512  # two workspaces, the input, gradients, y
