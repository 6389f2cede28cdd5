import gc

import torch

from tests.cuda.programs.graph_trees.head import num_graphs

f = torch.compile(lambda x: (x * 2).sum(0), backend="cudagraphs", dynamic=False)
for device in ("cuda:0", "cuda:1"):
    for rows in (2, 3, 2, 3, 2, 3):
        x = torch.ones(rows, 4, device=device)
        assert f(x).tolist() == [2 * rows] * 4
assert num_graphs(0) == num_graphs(1) == 2

# An input that is changed is no parameter: the function runs as it is.
change = torch.compile(lambda x: x.add_(1), backend="cudagraphs")
x = torch.zeros(2, device="cuda")
for number in range(1, 5):
    change(x)
    assert x.tolist() == [number] * 2

# What is alive when another function is captured keeps its memory, and what is dead gives it up.
torch._dynamo.reset()
first = torch.compile(lambda x: [x + 1, x + 2], backend="cudagraphs")
second = torch.compile(lambda x: x * 3, backend="cudagraphs")
third = torch.compile(lambda x: x * 5, backend="cudagraphs")
x = torch.ones(64, device="cuda")
for number in range(6):
    torch.compiler.cudagraph_mark_step_begin()
    kept, dropped = first(x)
    if number % 2:
        del dropped
    result = (second if number < 4 else third)(kept)
    assert kept[0].item() == 2 and result[0].item() == (6 if number < 4 else 10), number
del kept, result
torch._dynamo.reset()
gc.collect()
torch.cuda.empty_cache()
assert torch.cuda.memory_allocated() <= 2048, torch.cuda.memory_allocated()
