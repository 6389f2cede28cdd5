import torch

c = torch._C


def raises(text, call, *arguments):
    try:
        call(*arguments)
    except ValueError as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(text)


graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    x = torch.ones(3 << 20, device="cuda") + 1
pool = graph.pool()
state = c._cuda_getCheckpointState(0, pool)
del graph, x
torch.cuda.empty_cache()
raises("no private pool", c._cuda_setCheckpointPoolState, 0, state, [], [])
raises("no private pool", c._cuda_getCheckpointState, 0, pool)
# The same pool with other memory.
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, pool=pool):
    x = torch.ones(30 << 20, device="cuda")
before = torch.cuda.memory_stats()
stale = [x.untyped_storage()._cdata]
raises("has given memory back", c._cuda_setCheckpointPoolState, 0, state, stale, [])
assert torch.cuda.memory_stats() == before
