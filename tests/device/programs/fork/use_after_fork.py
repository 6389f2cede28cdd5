import ast
import os
import sys
import traceback

import torch

sentence = ast.literal_eval(sys.argv[1])
x = torch.arange(3.0, device="loom")
pid = os.fork()
if pid == 0:
    try:
        assert torch.loom._is_in_bad_fork() and not torch.loom.is_initialized()
        assert torch.loom.is_available() and torch.loom.device_count() == 2
        torch.manual_seed(0)
        (torch.ones(2) + 1).sum()
        for name, use in {
            "ones": lambda: torch.ones(2, device="loom"),
            "to": lambda: torch.ones(2).to("loom"),
            "add": lambda: x + 1,
            "add_": lambda: x.add_(1),
            "cpu": lambda: x.cpu(),
            "item": lambda: x[0].item(),
            "repr": lambda: repr(x),
            "rand": lambda: torch.rand_like(x),
            "set_device": lambda: torch.loom.set_device(1),
            "device": lambda: torch.loom.device(1).__enter__(),
            "synchronize": lambda: torch.loom.synchronize(),
            "accelerator": lambda: torch.accelerator.synchronize(),
            "memory": lambda: torch.loom.memory_allocated(),
            "mem_get_info": lambda: torch.loom.mem_get_info(),
            "empty_cache": lambda: torch.loom.empty_cache(),
            "stream": lambda: torch.Stream(device="loom"),
            "state": lambda: torch.loom.get_rng_state(),
        }.items():
            try:
                use()
            except RuntimeError as error:
                assert sentence in str(error), (name, error)
            else:
                raise AssertionError(name + " did not raise")
        del x
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert (x + 1).tolist() == [1, 2, 3]
