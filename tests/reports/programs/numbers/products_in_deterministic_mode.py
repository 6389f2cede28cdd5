import ast
import sys

import torch

from tests.raising import raises

is_set = ast.literal_eval(sys.argv[1])
torch.use_deterministic_algorithms(True)
x = torch.ones(2, 2, device="cuda")
if is_set:
    assert (x @ x).sum() == 8
else:
    raises("RuntimeError", "it uses CuBLAS and you have CUDA >= 10.2", lambda: x @ x)
