import sys

import torch

side = torch.loom.Stream()
x = torch.rand(400, 400, device="loom")
index = torch.tensor([int(sys.argv[1])], device="loom")
with torch.loom.stream(side):
    for last in (False, True):
        for _ in range(20):
            y = x @ x
        if last:
            torch.index_select(x, 0, index)
        else:
            torch.index_select(x, 0, index * 0)
            side.synchronize()
torch.loom.Stream().wait_stream(side)
event = side.record_event()
