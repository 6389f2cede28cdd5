import ast
import importlib  # noqa: F401
import sys

import torch
from torch.utils import collect_env  # noqa: F401

question = ast.literal_eval(sys.argv[1])
cuda, x = torch.cuda, torch.ones(4, device="cuda")
props = cuda.get_device_properties(0)
assert eval(question), eval(question.partition(" ==")[0])
