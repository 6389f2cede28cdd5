"""PyTorch's pipelines on simulated ranks: each stage's memory, its bubble, and objects between ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from tests.raising import raises
from torch_loom.distributed import simulate

SIZE, STAGES = 4096, 4


def train(schedule, num_batches):
    rank = dist.get_rank()
    model = nn.Sequential(*(nn.Linear(SIZE, SIZE, bias=False) for _ in range(4))).loom()
    stage = PipelineStage(model, rank, STAGES, torch.device("loom", rank))
    pipeline = schedule(stage, num_batches, loss_fn=lambda y, _: y.sum())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        if rank == 0:
            pipeline.step(torch.empty(1024 * num_batches, SIZE, device="loom"))
        elif rank == STAGES - 1:
            pipeline.step(target=torch.empty(1024 * num_batches, device="loom"), losses=[])
        else:
            pipeline.step()
        optimizer.step()
        optimizer.zero_grad()


def busy(plan):
    """The least share of a step in which a stage multiplies."""
    return min(
        rank.seconds_by_family["matmul"] / len(rank.step_seconds) / rank.step_seconds[-1]
        for rank in plan.ranks.values()
    )


simulation = simulate(world_size=STAGES, topology="dgx-h100")
few, many = simulation(train, Schedule1F1B, 4), simulation(train, Schedule1F1B, 16)
# Of so many batches, three more pass while a stage waits: at best 4/7 and 16/19 of the time are work.
assert busy(few) < 4 / 7 < busy(many) < 16 / 19, (busy(few), busy(many))
peaks = [rank.peak_memory_bytes for rank in many.ranks.values()]
# A stage keeps as many batches as there are stages behind it, and all of them in GPipe.
assert peaks[1] > peaks[2] and peaks[0] > peaks[3], peaks
assert simulation(train, ScheduleGPipe, 16).ranks[1].peak_memory_bytes > 1.3 * peaks[1]


def objects():
    rank, size = dist.get_rank(), dist.get_world_size()
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank})
    # Ranks that are not simulated have one's own.
    assert [one["rank"] for one in found] == [rank, 1, 2, rank], found
    found = [rank]
    dist.broadcast_object_list(found, src=2)
    assert found == [2]
    if rank == 1:
        dist.send_object_list(["a", 7], dst=2)
    else:
        found = [None, None]
        assert dist.recv_object_list(found, src=1) == 1
        assert found == ["a", 7]
    found = [None]
    dist.scatter_object_list(found, ["a", "b", "c", "d"] if rank == 1 else None, src=1)
    assert found == ["abcd"[rank]], found
    if rank == 1:
        dist.recv_object_list([None], src=0)


message = "rank 1 receives objects from rank 0, which is not simulated"
raises("DryRunError", message, lambda: simulate(world_size=4, topology="dgx-h100", ranks=[1, 2])(objects))
