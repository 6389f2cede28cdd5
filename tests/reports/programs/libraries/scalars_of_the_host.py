import ast
import sys

import torch

from tests.raising import raises

binary = ast.literal_eval(sys.argv[1])
x, scalar, zero_dim = torch.ones(3, device="cuda"), torch.tensor(2.0), torch.ones((), device="cuda")
for name in binary:
    op = getattr(torch, name)
    for a, b in ((x, scalar), (scalar, x), (zero_dim, scalar)):
        found = op(a, b)
        assert found.is_cuda and torch.equal(found.cpu(), op(a.cpu(), b.cpu())), name
raises("RuntimeError", "method wrapper_CUDA_logaddexp", lambda: torch.logaddexp(x, scalar))
