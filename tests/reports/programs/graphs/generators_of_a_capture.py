import torch

from tests.raising import raises

own = torch.Generator("cuda")


def capture(body):
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        body()


raises("RuntimeError", "", lambda: capture(lambda: torch.rand(3, device="cuda", generator=own)))
raises("RuntimeError", "seed", lambda: capture(lambda: torch.cuda.manual_seed(3)))
graph = torch.cuda.CUDAGraph()
graph.register_generator_state(own)
with torch.cuda.graph(graph):
    drawn = torch.rand(3, device="cuda", generator=own)
own.manual_seed(7)
graph.replay()
again = torch.rand(3, device="cuda", generator=torch.Generator("cuda").manual_seed(7))
assert torch.equal(drawn, again)
