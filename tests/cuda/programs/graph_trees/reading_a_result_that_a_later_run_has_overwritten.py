import torch

from tests.cuda.programs.graph_trees.head import is_overwritten, num_graphs

f = torch.compile(lambda x: x @ x, mode="reduce-overhead")
x = torch.eye(4, device="cuda") * 3
first, second = f(x), f(x)  # as it is, and captured
for read in (
    lambda: first.sum(),
    lambda: first + 1,
    lambda: first.cpu(),
    lambda: first.clone(),
    lambda: first[0],
    lambda: first.view(16),
    lambda: print(first),
    lambda: first.data_ptr(),
    lambda: first.add_(1),
    lambda: torch.cat([x, first]),
    lambda: x.copy_(first),
    first.tolist,
):
    assert is_overwritten(read)
assert first.shape == (4, 4) and first.device.type == "cuda"
assert second.diagonal().tolist() == [9] * 4
third = f(x * 2)
assert is_overwritten(second.sum)
view, copy = third.t(), third.clone()
del third
fourth = f(x * 3)
assert fourth[0, 0].item() == 81 and copy[0, 0].item() == 36
# From then on the results of one graph are one tensor.
assert f(x) is fourth and fourth[0, 0].item() == 9
assert num_graphs() == 1

# One function after the other, in one step and in two.
torch._dynamo.reset()
f = torch.compile(lambda x: x + 1, mode="reduce-overhead")
g = torch.compile(lambda x: x + 1, mode="reduce-overhead")
x = torch.ones(2, device="cuda")
assert is_overwritten(lambda: g(f(x)) - x)
torch._dynamo.reset()
for _ in range(4):
    torch.compiler.cudagraph_mark_step_begin()
    y = f(x).clone()
    assert g(y).tolist() == [3, 3] and y.tolist() == [2, 2]
torch._dynamo.reset()
for _ in range(4):
    torch.compiler.cudagraph_mark_step_begin()
    y = f(x)
    assert g(y).tolist() == [3, 3] and y.tolist() == [2, 2]
