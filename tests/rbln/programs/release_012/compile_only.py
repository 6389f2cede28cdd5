import ast
import json
import sys
from pathlib import Path

import torch
from torch import nn

import torch_loom  # noqa: F401

folder = Path(ast.literal_eval(sys.argv[1]))
options = {"mode": ["compile_only"], "cache_dir": str(folder)}
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU()).half().eval().to("rbln:0")
x = torch.ones(2, 4, dtype=torch.float16, device="rbln:0")
with torch.no_grad():
    result = torch.compile(model, backend="rbln", dynamic=False, options=options)(x)
assert (result.shape, result.dtype, result.device) == ((2, 8), torch.float16, x.device)
(path,) = folder.glob("*.rbln")
program = json.loads(path.read_text())
assert (len(program["inputs"]), len(program["outputs"]), program["chip"]) == (3, 1, "atom")
assert any("relu" in call["op"] for call in program["calls"])
print(path.name)
