import ast
import sys

import torch

import torch_loom  # noqa: F401

eager_malloc = ast.literal_eval(sys.argv[1])
properties = torch.rbln.get_device_properties()
assert (
    properties.name == "RBLN-CA12"
    and properties.extra["chip"] == "atom"
    and properties.total_memory == int(15.7 * 2**30)
)
assert properties.extra["memory_policy"] == ("eager" if int(eager_malloc) else "lazy")
assert torch.rbln.get_amp_supported_dtype() == [torch.float16]
