import ast
import sys

import torch

import torch_loom
from tests.raising import raises

op = ast.literal_eval(sys.argv[1])
torch_loom._autoload()
raises("ChipError", f"native_ops: there is no op '{op}'", lambda: torch.loom.init())
