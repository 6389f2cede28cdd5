"""After a registration that fails, PyTorch is as it was: op by op, and `import torch` could go on."""

import ast
import importlib.util
import sys
import sysconfig
from pathlib import Path

import torch

stops_after = ast.literal_eval(sys.argv[1])
KEYS = (
    "CUDA",
    "SparseCUDA",
    "SparseCsrCUDA",
    "QuantizedCUDA",
    "NestedTensorCUDA",
    "AutogradCUDA",
    "PrivateUse1",
)


def registered():
    return {key: sorted(torch._C._dispatch_get_registrations_for_dispatch_key(key)) for key in KEYS}


before, table = registered(), torch._C._dispatch_dump_table("aten::add.Tensor")
# Importing torch_loom would register the devices.
path = Path(importlib.util.find_spec("torch_loom").origin).parent
spec = importlib.util.spec_from_file_location("_C", path / ("_C" + sysconfig.get_config_var("EXT_SUFFIX")))
_C = importlib.util.module_from_spec(spec)
spec.loader.exec_module(_C)

assert 0 <= stops_after < _C.num_registrations()
try:
    _C.register_device("cuda", stops_after=stops_after)
except RuntimeError as error:
    assert "stopped, as it was asked for" in str(error)
else:
    raise AssertionError("it went on")
after = registered()
assert after == before, {key: set(after[key]) ^ set(before[key]) for key in KEYS}
assert torch._C._dispatch_dump_table("aten::add.Tensor") == table
try:
    torch.ones(2, device="cuda")
except (RuntimeError, AssertionError) as error:
    assert "NVIDIA" in str(error) or "not compiled with CUDA" in str(error), error
x = torch.ones(2, requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2, 2]
