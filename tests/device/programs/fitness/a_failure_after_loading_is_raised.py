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

# The module of the devices is imported when it is used.
is_early = name != "torch_loom.device"
found = [str(each.message) for each in said]
assert [name in each for each in found] == [True] * is_early, found
try:
    torch.ones(2, device="loom")
except RuntimeError as error:
    assert type(error).__name__ == "ExtensionError"
    assert name in str(error)
    assert "Install it again: `pip install" in str(error)
else:
    raise AssertionError("nothing is raised")
x = torch.ones(2, requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2, 2]
assert (torch_loom._failure is not None) == is_early
