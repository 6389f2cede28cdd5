import threading

import torch

from tests.device.programs.fallback.prelude import half, kept, stats

x = half(8, 8)
stream = torch.loom.Stream()
with torch.loom.stream(stream):
    for _ in range(20):
        x.exp()
stream.synchronize()
assert stats() == {("exp", None): 20}, stats()

torch.loom.reset_fallback_stats()
kept.lines.clear()
barrier = threading.Barrier(8)


def work():
    barrier.wait()
    for _ in range(50):
        x.sin()


threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert stats() == {("sin", None): 400}, stats()
assert len(kept.lines) == 1

torch.loom.reset_fallback_stats()
torch.autograd.set_multithreading_enabled(True)
leaf = half(8, 8).requires_grad_()
leaf.exp().backward(half(8, 8))
assert stats()["exp", None] == 1

graph = torch.loom.LoomGraph() if hasattr(torch.loom, "LoomGraph") else torch.loom.CUDAGraph()
x.cos()
torch.loom.reset_fallback_stats()
with torch.loom.graph(graph):
    x.cos()
assert stats() == {("cos", None): 1}, stats()
graph.replay()
torch.loom.synchronize()
assert stats() == {("cos", None): 1}, stats()
