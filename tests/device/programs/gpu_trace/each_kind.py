import ast
import sys

import torch

import torch_loom.device as loom
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


x = torch.empty(10, device="loom")
address = x.data_ptr()
assert taken() == [("memory_allocation", address)], told
del x
assert taken() == [("memory_deallocation", address)]
stream = loom.Stream()
assert taken() == [("stream_creation", stream.native_handle)]
event = loom.Event()
assert taken() == []
event.record(stream)
handle = event.event_id
assert taken() == [("event_creation", handle), ("event_record", handle, stream.native_handle)]
default = loom.current_stream()
event.wait()
assert taken() == [("event_wait", handle, default.cuda_stream)] == [("event_wait", handle, 0)]
event.synchronize()
assert taken() == [("event_synchronization", handle)]
stream.synchronize()
assert taken() == [("stream_synchronization", stream.native_handle)]
loom.synchronize()
assert taken() == [("device_synchronization",)]
del event
assert taken() == [("event_deletion", handle)]
torch.ones(5).pin_memory("loom")
assert taken() == []
