# Importing Triton is no use of the devices: a child forked then may use them.
import os

import torch

from tests.kernels.programs import kernels


def result():
    x, out = torch.ones(8, device="cuda"), torch.zeros(8, device="cuda")
    kernels.one[(1,)](x, out)
    return out[0].item()


child = os.fork()
if child == 0:
    print("child", result(), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("parent", result())
