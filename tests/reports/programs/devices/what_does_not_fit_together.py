import ast
import sys

import torch
import torch.nn.functional as F  # noqa: F401
from torch.nn.utils.rnn import pack_padded_sequence  # noqa: F401

call, message = ast.literal_eval(sys.argv[1])
x, i = torch.ones(4, 3, device="cuda"), torch.tensor([0], device="cuda")
try:
    exec(call)
except (RuntimeError, TypeError) as error:
    assert message in str(error), error
else:
    raise AssertionError("no error")
assert x[torch.tensor([0])].is_cuda  # indices may be the host's
