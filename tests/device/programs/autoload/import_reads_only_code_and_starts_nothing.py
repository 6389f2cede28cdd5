import os
import sys

import torch

opened = []


def shared():
    with open("/proc/self/maps") as maps:
        return [line for line in maps if "/dev/shm" in line or "memfd" in line]


before, shared_before = len(os.listdir("/proc/self/task")), shared()
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import torch_loom

torch_loom._autoload()
files = list(opened)
assert len(os.listdir("/proc/self/task")) == before
assert shared() == shared_before
assert not torch.loom.is_initialized() and not torch_loom._C.is_initialized()
print([file for file in files if not file.endswith((".py", ".pyc", ".so"))])
