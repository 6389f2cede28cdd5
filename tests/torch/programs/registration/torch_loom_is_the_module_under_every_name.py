import ast
import importlib
import sys

import torch
import torch.loom.memory

name = ast.literal_eval(sys.argv[1])
importlib.import_module(f"torch.{name}.memory")
module = getattr(torch, name)
assert module is torch.get_device_module(name)
# The vendor gives some names of ours another meaning: torch.rbln is a module of its own, with one state.
assert (module is torch.loom) == (name != "rbln")
memory = sys.modules["torch.loom.memory"]
assert memory is torch.loom.memory
assert (sys.modules[f"torch.{name}.memory"] is memory) == (name != "rbln")
with torch.loom.explain() as report:
    assert (torch.ones(2, device=name) + 1).tolist() == [2, 2]
assert torch.loom.memory_allocated() == module.memory_allocated()
