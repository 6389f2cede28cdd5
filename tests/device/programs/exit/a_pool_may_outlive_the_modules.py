import builtins

import torch

builtins.pool = torch.loom.MemPool()
with torch.loom.use_mem_pool(builtins.pool):
    builtins.held = torch.ones(4, device="loom")
