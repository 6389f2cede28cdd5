import torch

from tests.cuda.programs.workspaces.setup import MIB, kept, x


def in_pool(pool):
    segments = [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] == pool]
    return sum(s["allocated_size"] for s in segments) // MIB


y = x.detach()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    z = y @ y
assert in_pool(graph.pool()) == 32 and kept() == 32
graph.replay()
assert z.tolist() == [[8.0] * 8] * 8
again = torch.cuda.CUDAGraph()
with torch.cuda.graph(again, pool=graph.pool()):
    y @ y  # on the same stream, in the same memory
assert in_pool(graph.pool()) == 32
pool = graph.pool()
del z, again
assert kept() == 0  # a graph's end clears the stream that it was captured on
del graph
torch.cuda.empty_cache()
assert in_pool(pool) == 0 and not [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] == pool]
