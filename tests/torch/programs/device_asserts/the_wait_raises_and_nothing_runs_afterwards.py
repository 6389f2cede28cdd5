import ast
import sys

import torch
from torch.nn import functional as F  # noqa: F401

from tests.torch.programs.device_asserts.start import asserts, i, x  # noqa: F401

call, shape = ast.literal_eval(sys.argv[1])
y = eval(call)
assert y.shape == shape and y.device.type == "loom"
z = y * 2  # launches go on until somebody waits
waits = [lambda: z.sum().item(), torch.loom.synchronize, z.cpu, lambda: z.to("loom:1")]  # noqa: F821
asserts(*waits, lambda: x + 1, lambda: torch.zeros(2, device="loom"), torch.loom.synchronize)  # noqa: F821
del x, y, z
