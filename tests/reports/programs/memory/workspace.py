import ast
import sys

import torch

workspace = ast.literal_eval(sys.argv[1])


def forward():
    torch.nn.Linear(1, 1, device="cuda")(torch.randn(1, 1, device="cuda"))


forward()
torch.cuda.synchronize()
assert torch.cuda.memory_allocated() == workspace, torch.cuda.memory_allocated()
forward()
assert torch.cuda.memory_allocated() == workspace
torch._C._cuda_clearCublasWorkspaces()
assert torch.cuda.memory_allocated() == 0
