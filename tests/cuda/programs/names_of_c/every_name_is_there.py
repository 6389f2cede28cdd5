import ast
import sys

import torch

import torch_loom  # noqa: F401
from tests.cuda.programs.names_of_c.listed import listed, stubs, used

left_out = ast.literal_eval(sys.argv[1])
names = listed() | used()
assert len(listed()) > 90 and len(used()) > 90, (len(listed()), len(used()))
absent = {name for name in names if not hasattr(torch._C, name)}
assert absent == left_out, absent
properties = next(node for node in stubs() if getattr(node, "name", "") == "_CudaDeviceProperties")
fields = [node.target.id for node in properties.body if isinstance(node, ast.AnnAssign)]
device = torch.cuda.get_device_properties(0)
assert isinstance(device, torch._C._CudaDeviceProperties) and len(fields) >= 16
assert [field for field in fields if not hasattr(device, field)] == []
