import torch

import torch_loom
from tests.raising import raises

torch_loom._autoload()
x = torch.zeros(4, dtype=torch.float16, device="rbln")
raises("FallbackError", "aten::exp", lambda: x.exp())
