"""Slices with a stride of 0, of which the CPU's kernel reads what lies behind the tensor."""

import torch

for shape, dim in (((1,), 0), ((3, 1), 1), ((1, 3), 0)):
    once = torch.arange(1.0, 1 + max(shape), device="cuda").reshape(shape)
    for count in (2, 7, 33, 5000):
        sizes = list(shape)
        sizes[dim] = count
        for median in (torch.median, torch.nanmedian):
            values, places = median(once.expand(sizes), dim)
            assert values.equal(once.squeeze(dim)), (median, sizes, values)
            assert places.min() >= 0 and places.max() < count
