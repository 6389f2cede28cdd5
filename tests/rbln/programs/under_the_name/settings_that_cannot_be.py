import ast
import sys

import torch

import torch_loom  # noqa: F401
from tests.raising import raises

message, f_variable_value_r = ast.literal_eval(sys.argv[1])
for use in (torch.rbln.device_count, torch.rbln.device_summary, lambda: torch.ones(1, device="rbln")):
    raises("ConfigurationError", message, use)
    raises("ConfigurationError", f_variable_value_r, use)
