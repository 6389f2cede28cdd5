import ast
import sys

import torch

import torch_loom  # noqa: F401

assert torch.version.cuda == ast.literal_eval(sys.argv[1])
torch.loom.configure(chip="grayskull")
assert torch.version.cuda is None
try:
    torch.cuda.get_gencode_flags()
except NotImplementedError as error:
    assert "nvcc's options" in str(error)
else:
    raise AssertionError
torch.version.cuda = "11.0"  # the program's own
torch.cuda.init()
assert torch.version.cuda == "11.0"
