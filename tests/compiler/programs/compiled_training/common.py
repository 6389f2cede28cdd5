import ast
import copy
import sys

import torch
from torch._inductor import config

# Random numbers are those of eager mode; loops without vectors compile in half the time.
config.fallback_random, config.compile_threads, config.cpp.simdlen = True, 1, 1
torch.manual_seed(0)
DEVICE = ast.literal_eval(sys.argv[1])


def results(run, parameters, inputs, is_training):
    torch.manual_seed(3)
    given = [x.detach().requires_grad_(is_training) if x.is_floating_point() else x for x in inputs]
    with torch.set_grad_enabled(is_training):
        outputs = [x for x in torch.utils._pytree.tree_leaves(run(*given)) if x is not None]
    if not is_training:
        return outputs
    wanted = [x for x in (*parameters, *given) if x.requires_grad]
    loss = sum((x.float() ** 2).mean() for x in outputs)
    return [*outputs, *torch.autograd.grad(loss, wanted)]


def compare(model, *inputs, **options):
    model = model.to(DEVICE)
    twin = copy.deepcopy(model)
    inputs = [x.to(DEVICE) for x in inputs]
    compiled = torch.compile(twin, **{"fullgraph": True, **options})
    for is_training in (True, False):
        model.train(is_training), twin.train(is_training)
        wanted = results(model, model.parameters(), inputs, is_training)
        for _ in range(3 if "mode" in options else 1):
            found = results(compiled, twin.parameters(), inputs, is_training)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)
        layouts = [[(x.dtype, x.stride()) for x in each] for each in (found, wanted)]
        assert layouts[0] == layouts[1]
