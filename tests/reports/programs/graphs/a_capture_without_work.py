import warnings

import torch

x, y = torch.randn(2, 10, device="cuda:0")
graph = torch.cuda.CUDAGraph()
with torch.cuda.device(1), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with torch.cuda.graph(graph):
        z = x + y
assert any("The CUDA Graph is empty" in str(one.message) for one in caught)
first = z.clone()
x.normal_()
graph.replay()
torch.cuda.synchronize()
assert torch.equal(z, first)
