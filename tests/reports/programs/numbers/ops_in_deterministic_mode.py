import ast
import sys

import torch
import torch.nn.functional as F  # noqa: F401

from tests.raising import raises

refusing, allowed = ast.literal_eval(sys.argv[1])
torch.use_deterministic_algorithms(True)
d, i = "cuda", torch.tensor([0, 0], device="cuda")
square = torch.rand(1, 1, 4, 4, device=d, requires_grad=True)
for call, name in refusing.items():
    raises("RuntimeError", name + " does not have a deterministic implementation", lambda: eval(call))
for call in allowed:
    eval(call)
