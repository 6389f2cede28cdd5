"""Ranks of clusters that do not exist: what each needs, and when it waits for the others."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.raising import raises
from torch_loom.distributed import simulate

MIB = 1 << 20


def sharded(size):
    dist.init_process_group("loom")
    assert os.environ["WORLD_SIZE"] == str(dist.get_world_size())
    assert torch.loom.current_device() == int(os.environ["LOCAL_RANK"])
    model = nn.Sequential(*(nn.Linear(size, size, bias=False, device="meta") for _ in range(4)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    model.to_empty(device="loom")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.empty(64, size, device="loom")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


few = simulate(world_size=8, topology="dgx-h100", ranks=[0])(sharded, 2048).ranks[0]
many = simulate(world_size=1024, topology="dgx-h100", ranks=[0, 511, 1023])(sharded, 2048)
assert list(many.ranks) == [0, 511, 1023]
for rank in many.ranks.values():
    # A 1024th of four weights of 16 MiB instead of an eighth.
    assert rank.memory_by_category["parameters"] < few.memory_by_category["parameters"] / 50
    assert {each.name for each in rank.collectives} == {"all_gather", "reduce_scatter"}
    assert {each.num_ranks for each in rank.collectives} == {1024}
    # Between nodes there is less of a rate than in one.
    assert rank.seconds_by_family["collective"] > 2 * few.seconds_by_family["collective"]
    assert 0 < rank.exposed_seconds <= rank.seconds_by_family["collective"]
    assert len(rank.step_seconds) == 2
    assert rank.chip == "h100"


def straggling():
    x = torch.empty(4 * MIB, device="loom")
    if dist.get_rank() == 1:
        torch.loom._sleep(10_000_000)
    dist.all_reduce(x)
    torch.loom.synchronize()


plan = simulate(world_size=4, topology="dgx-h100")(straggling)
# All end together, but for what the host takes to issue the sleep.
ends = [rank.seconds for rank in plan.ranks.values()]
assert 0.005 < min(ends) <= max(ends) < min(ends) + 1e-4, ends
waited = {number: rank.waiting_seconds for number, rank in plan.ranks.items()}
assert waited[1] == 0 < waited[0] == waited[2] == waited[3], waited


def overlapped():
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(6))).loom())
    for _ in range(2):
        model(torch.empty(4096, 4096, device="loom")).sum().backward()


rank = simulate(world_size=8, topology="dgx-h100", ranks=[5])(overlapped).ranks[5]
# Buckets of gradients are reduced while others are computed.
assert rank.exposed_seconds < rank.seconds_by_family["collective"] / 2, rank


def pipeline(num_batches):
    rank, size = dist.get_rank(), dist.get_world_size()
    layer = nn.Linear(4096, 4096).loom()
    for _ in range(num_batches):
        x = torch.empty(4096, 4096, device="loom")
        if rank > 0:
            dist.recv(x, rank - 1)
        y = layer(x)
        if rank + 1 < size:
            dist.send(y, rank + 1)
    torch.loom.synchronize()


one, four = (simulate(world_size=4, topology="dgx-h100")(pipeline, count) for count in (1, 4))
# A batch passes through all stages; of four, each stage has one at a time.
ends = [one.ranks[rank].seconds for rank in range(4)]
assert ends == sorted(set(ends)), ends
assert four.seconds < 4 * one.seconds * 0.8
assert one.ranks[3].waiting_seconds > one.ranks[1].waiting_seconds > 0


def crossed():
    # Each receives before it sends.
    x, y = torch.empty(MIB, device="loom"), torch.empty(MIB, device="loom")
    other = 1 - dist.get_rank()
    works = [dist.irecv(y, other), dist.isend(x, other)]
    for work in works:
        work.wait()
    torch.loom.synchronize()


simulate(world_size=2, topology="dgx-h100")(crossed)


def meshed():
    mesh = init_device_mesh("loom", (2, 8), mesh_dim_names=("replicate", "shard"))
    x = torch.empty(64 * MIB, device="loom")
    for name in ("replicate", "shard"):
        dist.all_reduce(x, group=mesh[name].get_group())
    assert list(mesh.get_coordinate()) == [dist.get_rank() // 8, dist.get_rank() % 8]


plan = simulate(world_size=16, topology="dgx-a100", ranks=[3, 11])(meshed)
assert {(each.num_ranks, each.calls) for each in plan.ranks[11].collectives} == {(2, 1), (8, 1)}


def out_of_memory():
    x = torch.empty(20 << 30, dtype=torch.uint8, device="loom")
    if dist.get_rank() == 1:
        torch.cat([x] * 4)


plan = simulate(world_size=2, topology="dgx-h100")(out_of_memory)
assert plan.ranks[0].out_of_memory is None
assert "out of memory" in plan.ranks[1].out_of_memory


def disagreeing():
    x = torch.empty(4, device="loom")
    if dist.get_rank() == 0:
        dist.all_reduce(x)


TWO = {"world_size": 2, "topology": "dgx-h100"}
ended = "rank 0 in all_reduce number 1 of the ranks (0, 1) that are simulated. The ranks [1] have ended"
raises("DryRunError", ended, lambda: simulate(**TWO)(disagreeing))


def failing():
    raise KeyError(dist.get_rank())


raises("KeyError", "1", lambda: simulate(**TWO, ranks=[1])(failing))


def at_odds():
    dist.init_process_group("loom", world_size=3, rank=0)


raises("DryRunError", "the plan is that of rank 1 of 2", lambda: simulate(**TWO, ranks=[1])(at_odds))
unknown = "There is no topology 'dgx-h1000'. Shipped are:"
raises("TopologyError", unknown, lambda: simulate(world_size=2, topology="dgx-h1000"))
raises("ValueError", "0 to 1, got the rank 2", lambda: simulate(**TWO, ranks=[2]))
