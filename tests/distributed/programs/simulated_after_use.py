"""A cluster that is simulated after devices were used: its ranks are new processes."""

import torch
import torch.distributed as dist

from torch_loom.distributed import simulate


def step():
    dist.all_reduce(torch.empty(1 << 20, device="loom"))


if __name__ == "__main__":
    torch.empty(1, device="loom").add_(1)
    plan = simulate(world_size=16, topology="dgx-h100", ranks=[3, 9])(step)
    assert plan.topology == "dgx-h100"
    assert {rank: found.peak_memory_bytes for rank, found in plan.ranks.items()} == {3: 4 << 20, 9: 4 << 20}
