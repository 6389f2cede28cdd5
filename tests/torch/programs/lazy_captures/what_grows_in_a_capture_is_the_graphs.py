import torch

x = torch.ones(1000, device="loom").add(1)
graph = torch.loom.CUDAGraph()
with torch.loom.graph(graph):
    grown = torch.empty(0, device="loom")
    torch.add(x, 1, out=grown)
    result = grown * 2
    del grown
    counted = torch.zeros(3, device="loom")
    counted += 1
others = [torch.full((1000,), 7.0, device="loom").mul(1) for _ in range(8)]
for _ in range(2):
    graph.replay()
assert result.unique().tolist() == [6.0]
assert counted.tolist() == [1.0] * 3  # made anew by each replay
assert all(other.unique().tolist() == [7.0] for other in others)
