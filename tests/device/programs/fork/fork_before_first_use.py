import os
import traceback

import torch

torch.loom.manual_seed(4)
pid = os.fork()
assert torch.ones(2, device="loom").tolist() == [1, 1]
if pid == 0:
    try:
        assert not torch.loom._is_in_bad_fork() and torch.loom.initial_seed() == 4
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
