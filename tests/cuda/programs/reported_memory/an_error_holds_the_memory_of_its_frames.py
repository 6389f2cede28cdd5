import gc

import torch

import tests.cuda.programs.reported_memory.prepare  # noqa: F401

kept = []


def layers(keeps):
    done = -1
    try:
        x = torch.zeros(100, 2500, device=0)
        held = []
        for done in range(100):  # noqa: B007
            layer = torch.nn.utils.skip_init(torch.nn.Linear, 2500, 2500, device=0)
            held.append(layer)
            x = layer(x)
    except torch.OutOfMemoryError as error:
        if keeps:
            kept.append(error)
    return done


first = layers(True)
torch.cuda.empty_cache()
second = layers(True)
kept.clear()
gc.collect()
torch.cuda.empty_cache()
assert (first, layers(False), layers(False)) == (first,) * 3 and second < 3 < first, (first, second)
