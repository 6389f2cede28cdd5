"""A damaged package: the entry point warns once, and torch is as without it."""

import ast
import sys
import warnings

import torch

folder, words, is_there, has_devices = ast.literal_eval(sys.argv[1])
sys.path.insert(0, folder)
if not is_there:
    sys.modules["torch_loom"] = None  # the checkout's would be found elsewhere
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    # As at the end of `import torch`.
    torch._import_device_backends()
assert sys.modules["torch_loom_autoload"].__file__.startswith(folder)
assert len(said) == 1, [str(one.message) for one in said]
for word in words:
    assert word in str(said[0].message), (word, str(said[0].message))
try:
    made = torch.ones(2, device="loom")
except RuntimeError as error:
    assert not has_devices, error
else:
    assert has_devices, made
x = torch.ones(2, requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2, 2]
