import ast
import sys

import torch

import torch_loom  # noqa: F401
from tests.raising import raises

variable, value = ast.literal_eval(sys.argv[1])
torch.manual_seed(0)
for use in (
    lambda: torch.ones(2, device="loom"),
    lambda: torch.loom.init(),
    lambda: torch.loom.device_count(),
    lambda: torch.accelerator.is_available(),
    lambda: torch.accelerator.current_stream(),
    lambda: torch.Generator("loom"),
):
    raises("ConfigurationError", f"{variable}={value!r}", use)
assert not torch.loom.is_initialized()
