import os

import torch

import torch_loom  # noqa: F401
from tests.raising import raises

torch.rbln.init()
os.environ["TORCH_RBLN_EAGER_MALLOC"] = "perhaps"
make = lambda: torch.empty(1, device="rbln")
raises("ConfigurationError", "TORCH_RBLN_EAGER_MALLOC='perhaps'", make)
del os.environ["TORCH_RBLN_EAGER_MALLOC"]
x = torch.empty(1024, device="rbln")
assert torch.rbln.memory_allocated() == 0
