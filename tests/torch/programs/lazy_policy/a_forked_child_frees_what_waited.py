import os

import torch

x = torch.ones(1000, device="loom")
y = torch.ones(1000, device="loom") + 1
pid = os.fork()
if pid == 0:
    del x, y
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert (x + y).sum().item() == 3000
