import ast
import ctypes
import gc
import sys

import torch

library = ast.literal_eval(sys.argv[1])
loom, counts = torch.loom, ctypes.CDLL(library)
allocator = loom.memory.CUDAPluggableAllocator(library, "take", "give")
loom.memory.change_current_allocator(allocator)
x = torch.ones(1000, device="loom") + 1
assert x.sum().item() == 2000 and counts.live_blocks() >= 1
total = counts.total_blocks()
del x
gc.collect()
loom.synchronize()
assert counts.live_blocks() == 0 < total
