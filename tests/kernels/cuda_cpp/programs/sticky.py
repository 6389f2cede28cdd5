"""A kernel that writes where it must not: the device fails where the host waits, and stays failed."""

import ast
import os
import sys

import torch

(source,) = ast.literal_eval(sys.argv[1])
os.environ["TORCH_LOOM_CHECK_KERNELS"] = "1"
kernel = torch.cuda._compile_kernel(source, "writes_behind")
x, y = torch.ones(32, device="cuda"), torch.zeros(32, device="cuda")
kernel((2,), (32,), (x, y, 32))
errors = []
for ask in (torch.cuda.synchronize, torch.cuda.synchronize, lambda: torch.ones(3, device="cuda") + 1):
    try:
        ask()
    except torch.AcceleratorError as error:
        errors.append(str(error))
assert len(errors) == 3, errors
assert errors[0].startswith(
    "CUDA error: an illegal memory access was encountered\nwrites_behind: block (1, 0, 0)"
), errors
