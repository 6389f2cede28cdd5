import torch

import torch_loom  # noqa: F401

x = torch.ones(4, device="rbln")
graph = torch.accelerator.Graph()
with torch.Stream("rbln"), graph:
    x += 1
graph.replay()
assert x.tolist() == [2.0] * 4
with torch.rbln.graph(torch.rbln.CUDAGraph()):
    x += 1
