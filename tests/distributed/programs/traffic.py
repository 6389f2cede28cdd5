"""What real ranks issue of collectives is what a plan says of them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.distributed.programs.ranks import run
from torch_loom.distributed import simulate, traffic


def step():
    torch.manual_seed(0)
    rank, size = dist.get_rank(), dist.get_world_size()
    model = nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 32)).loom()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    model(torch.ones(4, 32, device="loom")).sum().backward()
    DistributedDataParallel(nn.Linear(16, 16).loom())(torch.ones(4, 16, device="loom")).sum().backward()
    x = torch.ones(8, device="loom")
    for request in dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, x, (rank + 1) % size),
            dist.P2POp(dist.irecv, torch.empty_like(x), (rank - 1) % size),
        ]
    ):
        request.wait()
    dist.all_to_all_single(torch.empty(8, device="loom"), x)
    torch.loom.synchronize()


def compare(plans):
    def check(rank):
        before = {(name, ranks): (calls, size) for name, ranks, calls, size in traffic()}
        step()
        found = {}
        for name, ranks, calls, size in traffic():
            calls_before, size_before = before.get((name, ranks), (0, 0))
            if calls > calls_before:
                found[name, ranks] = (calls - calls_before, size - size_before)
        planned = {(each.name, each.num_ranks): (each.calls, each.bytes) for each in plans[rank].collectives}
        assert found == planned, (found, planned)

    return check


for size in (2, 4):
    run(size, compare(simulate(world_size=size, topology="dgx-h100")(step).ranks), "loom")
