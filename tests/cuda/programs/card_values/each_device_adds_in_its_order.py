"""Devices of different chips: the tensor's says in which order is added, and not the current one."""

import torch

x = torch.randn(4, 1 << 21, generator=torch.Generator().manual_seed(0))


def sums(device: int, current: int) -> list[list[float]]:
    own = x.to(f"cuda:{device}")
    with torch.cuda.device(current):
        direct = own.sum(1).tolist()
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.default_stream(device))
        with torch.cuda.stream(stream):
            queued = own.sum(1)
        stream.synchronize()
    return [direct, queued.tolist()]


found = {device: [sums(device, current) for current in (0, 1)] for device in (0, 1)}
first, second = found[0][0][0], found[1][1][0]
assert first != second
assert all(one == first for pair in found[0] for one in pair), found
assert all(one == second for pair in found[1] for one in pair), found
