import ast
import importlib
import sys

import torch
import torch.loom.memory

name = ast.literal_eval(sys.argv[1])
importlib.import_module(f"torch.{name}.memory")
module = getattr(torch, name)
assert torch.loom is module is torch.get_device_module(name)
assert sys.modules["torch.loom.memory"] is sys.modules[f"torch.{name}.memory"] is torch.loom.memory
with torch.loom.explain() as report:
    assert (torch.ones(2, device=name) + 1).tolist() == [2, 2]
assert torch.loom.memory_allocated() == module.memory_allocated()
