import ast
import sys

import torch

import torch_loom.device as loom

str_library = ast.literal_eval(sys.argv[1])
for kind in ("device", "host"):
    pool = loom.MemPool(loom.PluggableAllocator(str_library, kind + "_alloc", kind + "_free"))
    with loom.use_mem_pool(pool):
        x = torch.arange(100.0, device="loom")
        assert (x + x).sum().item() == 9900
