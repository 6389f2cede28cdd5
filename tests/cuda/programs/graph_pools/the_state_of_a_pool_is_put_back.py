import torch

c = torch._C


def segments(pool):
    return [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] == pool]


def blocks(pool):
    return [(s["address"], b["size"], b["state"]) for s in segments(pool) for b in s["blocks"]]


graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    outputs = [torch.ones(600, device="cuda", dtype=torch.uint8) + i for i in range(4)]
    large = torch.ones(3 << 20, device="cuda", dtype=torch.uint8)
    outputs.append(large + 1)
    del large, outputs[1]
pool = graph.pool()
graph.replay()
before, stats = blocks(pool), torch.cuda.memory_stats()
state = c._cuda_getCheckpointState(0, pool)
addresses = [output.data_ptr() for output in outputs]
values = [output.tolist() for output in outputs]
assert c._cuda_checkPoolLiveAllocations(0, pool, set(addresses))

# Another graph of the pool comes and goes; its results are stale.
other = torch.cuda.CUDAGraph()
with torch.cuda.graph(other, pool=pool):
    stale = torch.ones(5 << 20, device="cuda", dtype=torch.uint8)
assert blocks(pool) != before
try:
    c._cuda_setCheckpointPoolState(0, state, [], [])
except RuntimeError as error:
    assert "stale tensors" in str(error)
else:
    raise AssertionError
c._cuda_setCheckpointPoolState(0, state, [stale.untyped_storage()._cdata], [])
del stale, other
assert c._cuda_checkPoolLiveAllocations(0, pool, set(addresses))

# Freed by its own tensors, and taken again: by a storage over the memory, or by an address alone.
kept = {key: torch.cuda.memory_stats()[key] for key in stats if key.endswith(".current")}
storage = c._construct_storage_from_data_pointer(addresses[0], outputs[0].device, 600)
assert not c._has_Standard_Deleter(storage._cdata)
assert c._has_Standard_Deleter(outputs[0].untyped_storage()._cdata)
del outputs
c._cuda_setCheckpointPoolState(0, state, [], [storage._cdata])
assert {key: torch.cuda.memory_stats()[key] for key in kept} == kept
again = torch.empty(0, device="cuda", dtype=torch.uint8).set_(storage, 0, (600,), (1,))
assert again.tolist() == values[0] and c._has_Standard_Deleter(storage._cdata)
del again, storage
assert c._cuda_checkPoolLiveAllocations(0, pool, set(addresses[1:]))
for address in addresses[1:]:
    c._cuda_cudaCachingAllocator_raw_delete(address)
assert c._cuda_checkPoolLiveAllocations(0, pool, set())
assert not c._cuda_checkPoolLiveAllocations(0, pool, {1})
