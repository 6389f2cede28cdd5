import resource

import torch


def host_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


line = torch.zeros(100_000, 1, device="loom")
square = torch.zeros(1, device="loom").expand(30_000, 30_000)
