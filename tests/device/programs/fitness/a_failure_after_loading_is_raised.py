"""What fails after the extension is loaded leaves a torch that works, too."""

import ast
import sys
import warnings

name = ast.literal_eval(sys.argv[1])
sys.modules[name] = None  # importing it raises ImportError
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import torch_loom
import torch

assert len(said) == 1
assert name in str(said[0].message)
try:
    torch.ones(2, device="loom")
except ImportError as error:
    assert name in str(error)
else:
    raise AssertionError("nothing is raised")
x = torch.ones(2, requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2, 2]
assert torch_loom._failure is not None
