import torch
from torch import nn

model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(2))).cuda()
model(torch.ones(8, 1024, device="cuda")).sum().backward()  # leaves workspaces
model.zero_grad()
before = torch.cuda.memory_allocated()
x = torch.rand(4, 256, 1024).cuda()
y = model(x).sum()
after_forward = torch.cuda.memory_allocated()
y.backward()
after_backward = torch.cuda.memory_allocated()
assert after_forward - before == 16777728 - 8388608, after_forward - before
assert after_backward - after_forward == 20972032 - 16777728, after_backward - after_forward
