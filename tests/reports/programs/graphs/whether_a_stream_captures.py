import torch

from tests.raising import raises

is_capturing = torch.cuda.is_current_stream_capturing
x, graph = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph()
assert not is_capturing()
with torch.cuda.graph(graph):
    assert is_capturing()
    y = x * 2
assert not is_capturing()
x.fill_(5)
graph.replay()
assert y.tolist() == [10, 10, 10]
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    torch.cuda.empty_cache()  # nothing that waits
    z = x * 3
raises("RuntimeError", "replay", torch.cuda.CUDAGraph().replay)
