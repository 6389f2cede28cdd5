import os

import torch

assert torch.loom.is_available() and torch.accelerator.is_available()
assert torch.loom.is_bf16_supported() and not torch.loom.is_initialized()
pid = os.fork()
if pid == 0:
    try:
        assert torch.ones(2, device="loom").sum().item() == 2 and not torch.loom._is_in_bad_fork()
    except BaseException:
        os._exit(1)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
