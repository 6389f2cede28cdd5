import gc

import torch

kept = []


def num_layers(is_keeping):
    layers = []
    try:
        x = torch.zeros(100, 2500, device=0)
        while True:
            layers.append(torch.nn.utils.skip_init(torch.nn.Linear, 2500, 2500, device=0))
            x = layers[-1](x)
    except torch.OutOfMemoryError as error:
        if is_keeping:
            kept.append(error)
    return len(layers)


first = num_layers(True)
torch.cuda.empty_cache()
assert num_layers(True) < 3
kept.clear()
gc.collect()
torch.cuda.empty_cache()
assert [num_layers(False), num_layers(False)] == [first, first] and first > 10
