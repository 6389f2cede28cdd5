import ast
import sys

import torch

code, value = ast.literal_eval(sys.argv[1])

axpy = torch.loom.jiterator._create_jit_fn(code, alpha=1.0)
x = torch.full((3,), 2.0).to("loom")
side = torch.loom.Stream()
side.wait_stream(torch.loom.current_stream())
with side:
    y = axpy(x, x[:1], alpha=4.0)
torch.loom.current_stream().wait_stream(side)
if value != "null":
    assert y.tolist() == [10.0] * 3, y
assert y.shape == (3,)
