import torch

from tests.torch.programs.device_asserts.start import asserts, i, x

i.fill_(1)
graph = torch.loom.CUDAGraph()
with torch.loom.graph(graph):
    y = x.index_select(0, i) + 1
graph.replay()
assert y.sum().item() == 16
i.fill_(9)
graph.replay()  # as on a GPU: nobody has waited yet
asserts(torch.loom.synchronize, graph.replay, y.cpu)
