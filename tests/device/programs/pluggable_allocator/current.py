import ast
import gc
import sys

import torch

import torch_loom.device as loom
from tests.raising import raises

path, kind, launch = ast.literal_eval(sys.argv[1])
allocator = loom.PluggableAllocator(path, kind + "_alloc", kind + "_free")
native = loom.memory._get_current_allocator()
assert loom.get_allocator_backend() == "native" and native.allocator() is None
loom.memory.change_current_allocator(allocator)
assert loom.get_allocator_backend() == "pluggable"
assert loom.memory._get_current_allocator() is allocator
import ctypes

library = ctypes.CDLL(path)
read = lambda name: ctypes.c_long.in_dll(library, name).value

x = torch.ones(1001, device="loom")
x.data_ptr()
assert (read("num_allocs"), read("last_size")) == (1, 4004), "the exact size, as on CUDA"
assert loom.memory_allocated() == 4004 == loom.memory_reserved()
y = x * 2
assert read("num_allocs") == 2 and y.sum().item() == 2002
del y
if launch == "chaos":
    loom.synchronize()
    loom.empty_cache()
assert read("num_frees") == read("num_allocs") - 1 and read("last_free_size") == 4004
stream = loom.Stream()
x.record_stream(stream)
stream.wait_stream(loom.current_stream())
with loom.stream(stream):
    z = x + 1
    graph = torch.nn.Linear(10, 10).to("loom")
    graph(torch.ones(3, 10, device="loom")).sum().backward()
del x
loom.synchronize()
assert z.sum().item() == 2002
captured = loom.LoomGraph()
static = torch.ones(5, device="loom")
loom.synchronize()
with loom.graph(captured):
    result = static * 3
captured.replay()
assert result.sum().item() == 15
pool = loom.MemPool()
with loom.use_mem_pool(pool):
    held = torch.ones(7, device="loom")
assert held.sum().item() == 7
address = loom.caching_allocator_alloc(100)
loom.caching_allocator_delete(address)
raises("AlreadyInitializedError", "MemPool(allocator=", lambda: loom.change_current_allocator(native))
del z, graph, static, result, held, captured, pool
gc.collect()
loom.synchronize()
loom.empty_cache()
# The streams' generator states and the like are tensors, too.
assert loom.memory_allocated() == 0 and read("num_frees") == read("num_allocs")
try:
    torch.empty(1 << 59, dtype=torch.uint8, device="loom").data_ptr()
except torch.OutOfMemoryError as error:
    assert "pluggable allocator" in str(error), error
else:
    raise AssertionError
