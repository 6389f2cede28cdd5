import ast
import sys

import torch

import torch_loom  # noqa: F401

use = ast.literal_eval(sys.argv[1])
torch.loom.manual_seed(11)
exec(use)
assert torch.loom.is_initialized()
assert torch.loom.initial_seed() == 11
