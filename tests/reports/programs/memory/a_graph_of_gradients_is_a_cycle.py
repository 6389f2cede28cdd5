import gc
import itertools
import warnings

import torch

model, data = torch.nn.Linear(30000, 1).cuda(), torch.ones(10, 30000).cuda()


def growth(is_reset):
    "What each pass leaves, in sizes of its input."
    allocated = []
    for _ in range(4):
        x = data.clone().requires_grad_()
        model(x).norm(2).backward(create_graph=True)
        x.grad.norm(2).backward()
        model.zero_grad()
        if is_reset:
            x.grad = None
        gc.collect()
        allocated.append(torch.cuda.memory_allocated())
    return [(after - before) / x.nbytes for before, after in itertools.pairwise(allocated)]


with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert all(more >= 2 for more in growth(False))  # the input and its gradient
assert any("will create a reference cycle" in str(one.message) for one in caught)
assert growth(True)[1:] == [0, 0]
