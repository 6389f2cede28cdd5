import ast
import os
import sys

import pynvml
import torch

machine = ast.literal_eval(sys.argv[1])
torch.cuda.configure(chip="a100", devices=3)
x = torch.ones(10 << 20, device="cuda")


def used():
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 3
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetName(device) == torch.cuda.get_device_name()
    users = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
    return [(each.pid, each.usedGpuMemory) for each in users]


TAKEN = 544 + 40 << 20  # the context, in pages of 2 MiB, and the tensor

assert used() == [(os.getpid(), TAKEN)]
parent, child = os.getpid(), os.fork()
if child == 0:
    try:
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        found = [each.pid for each in pynvml.nvmlDeviceGetComputeRunningProcesses(device)]
        os._exit(0 if found == ([] if machine == "none" else [parent]) else 1)
    finally:
        os._exit(2)
assert os.waitpid(child, 0)[1] == 0
assert used() == [(parent, TAKEN)], "asking has given up the lock of the parent"
