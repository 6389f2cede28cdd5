import ast
import sys

import torch

import torch_loom.device as loom
from tests.raising import raises
from torch_loom.device import _gpu_trace as trace

names = ast.literal_eval(sys.argv[1])
told = []
for name in names:
    kind = name.removeprefix("register_callback_for_")
    getattr(trace, name)(lambda *args, kind=kind: told.append((kind, *args)))


def taken():
    result = told[:]
    told.clear()
    return result


import threading


def fail(address):
    raise ValueError("the callback failed")


calls = []
trace.register_callback_for_memory_allocation(fail)


def compute(address):
    calls.append(torch.ones(3, device="loom").sum().item())


trace.register_callback_for_memory_allocation(compute)
x = torch.ones(10, device="loom")
x.data_ptr()
assert calls == [3.0], calls
assert x.sum().item() == 10
trace.MemoryAllocationCallbacks.callback_list.pop()


def interrupt(address):
    raise KeyboardInterrupt


trace.register_callback_for_memory_deallocation(interrupt)
interrupted = False
try:
    del x
    for _ in range(1000):
        pass
except KeyboardInterrupt:
    interrupted = True
assert interrupted
raises("TypeError", "cb must be callable", lambda: trace.register_callback_for_event_wait(3))

# From all threads, workers' frees included.
trace.MemoryDeallocationCallbacks.callback_list.clear()
trace.MemoryAllocationCallbacks.callback_list.clear()
live = set()
trace.register_callback_for_memory_allocation(live.add)
trace.register_callback_for_memory_deallocation(live.remove)


def work():
    with loom.stream(loom.Stream()):
        for size in range(1, 50):
            y = torch.ones(size * 100, device="loom")
            z = (y + y).sum()
            del y
        assert z.item() == 9800


threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
loom.synchronize()
del threads
assert not live, live
