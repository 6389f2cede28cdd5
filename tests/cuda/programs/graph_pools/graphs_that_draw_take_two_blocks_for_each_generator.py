import torch


def in_use():
    stats = torch.cuda.memory_stats()
    return stats["active.all.current"], stats["active_bytes.all.current"]


torch.ones(1, device="cuda")
before = in_use()
default = torch.cuda.default_generators[0]
states = [default.graphsafe_get_state(), default.clone_state(), default.clone_state()]
graphs = [torch.cuda.CUDAGraph() for _ in range(4)]
for graph in graphs:
    for state in states:
        graph.register_generator_state(state)
assert in_use() == (before[0] + 6, before[1] + 6 * 512)
del graph, graphs[1:]
assert in_use() == (before[0] + 6, before[1] + 6 * 512)
del graphs
assert in_use() == before
