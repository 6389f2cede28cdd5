import ast
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file

import torch_loom  # noqa: F401

name, folder = ast.literal_eval(sys.argv[1])
# Its list of device types is fixed and has neither name; an index is the accelerator's.
for device, where in (("cpu", "cpu"), (0, f"{name}:0"), (1, f"{name}:1")):
    x = load_file(f"{folder}/x.safetensors", device=device)["x"]
    assert x.device == torch.device(where), x.device
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and x.dtype == torch.float16
    assert (x + 1).sum().item() == 21
with safe_open(f"{folder}/x.safetensors", framework="pt", device=1) as file:
    x = file.get_tensor("x")
    row = file.get_slice("x")[1:]
    assert x.device == row.device == torch.device(f"{name}:1") and row.tolist() == [[3, 4, 5]]
