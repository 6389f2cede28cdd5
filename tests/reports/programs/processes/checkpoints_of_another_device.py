import ast
import sys

import torch

file = ast.literal_eval(sys.argv[1])
torch.save({"w": torch.arange(4.0, device="cuda:1")}, file)
assert torch.load(file)["w"].device.index == 1
assert torch.load(file, map_location="cuda:1")["w"].device.index == 1
moved = torch.load(file, map_location=lambda storage, place: storage.cuda(0))["w"]
assert moved.device.index == 0
del moved
assert torch.cuda.memory_allocated(0) == 0
with torch.cuda.device(1):
    loaded = torch.load(file, map_location={"cuda:1": "cuda:0"})["w"]
assert loaded.device.index == 0 and torch.cuda.memory_allocated(0) == 512
