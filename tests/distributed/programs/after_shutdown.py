"""A group that was shut down refuses; all_to_all_single wants rows that lie one after another."""

import torch
import torch.distributed as dist

from tests.distributed.programs.ranks import run
from tests.raising import raises


def check(rank):
    x = torch.ones(4, 4, device="cuda")
    raises(
        "ValueError",
        "Tensors must be contiguous",
        lambda: dist.all_to_all_single(torch.empty_like(x), x.T[:2].T),
    )
    dist.all_to_all_single(torch.empty_like(x), x)
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    other = dist.new_group()._get_backend(torch.device("cuda"))
    assert other.uid == backend.uid + 1
    before = backend.comm_split_count()
    backend.perform_nocolor_split(torch.device("cuda", 0))
    assert backend.comm_split_count() == before + 1
    backend.shutdown()
    raises("DistBackendError", f"was shut down on rank {rank}", lambda: dist.all_reduce(x))


run(2, check, "nccl")
